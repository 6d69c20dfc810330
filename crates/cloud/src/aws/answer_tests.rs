//! Answers of EC2 and STS, whole and cut off anywhere.

use super::answer::*;

const INSTANCES: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>fdcdcab1</requestId>
  <reservationSet><item><reservationId>r-1</reservationId><instancesSet>
    <item><instanceId>i-1</instanceId><instanceType>m6i.large</instanceType><networkInterfaceSet>
      <item><networkInterfaceId>eni-2</networkInterfaceId><subnetId>subnet-b</subnetId>
        <attachment><deviceIndex>1</deviceIndex></attachment>
        <privateIpAddressesSet><item><privateIpAddress>10.1.0.9</privateIpAddress><primary>true</primary></item></privateIpAddressesSet></item>
      <item><networkInterfaceId>eni-1</networkInterfaceId><subnetId>subnet-a</subnetId>
        <description>first &amp; only</description><attachment><deviceIndex>0</deviceIndex></attachment>
        <privateIpAddressesSet>
          <item><privateIpAddress>10.0.0.7</privateIpAddress><primary>true</primary></item>
          <item><privateIpAddress>10.0.0.40</privateIpAddress><primary>false</primary></item>
        </privateIpAddressesSet></item>
    </networkInterfaceSet></item>
    <item><instanceId>i-2</instanceId><instanceType>m6i.large</instanceType><networkInterfaceSet/></item>
  </instancesSet></item></reservationSet>
  <nextToken>more</nextToken>
</DescribeInstancesResponse>"#;

const TYPES: &str = r#"<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><instanceTypeSet>
  <item><instanceType>m6i.large</instanceType><networkInfo><maximumNetworkInterfaces>3</maximumNetworkInterfaces>
  <ipv4AddressesPerInterface>10</ipv4AddressesPerInterface></networkInfo></item></instanceTypeSet></DescribeInstanceTypesResponse>"#;

const ROLE: &str = r#"<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult><Credentials><SessionToken>hidden-token</SessionToken>
  <SecretAccessKey>hidden-key</SecretAccessKey><Expiration>2026-11-16T07:00:00Z</Expiration><AccessKeyId>ASIA1</AccessKeyId>
  </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"#;

const DONE: &str = r#"<AssignPrivateIpAddressesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId><return>true</return></AssignPrivateIpAddressesResponse>"#;

const FAULT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<Response><Errors><Error><Code>PrivateIpAddressLimitExceeded</Code><Message>Number of private addresses will exceed limit.</Message></Error></Errors><RequestID>9</RequestID></Response>"#;

/// Every beginning of an answer but the answer itself is refused, and none is read as a shorter one.
fn refuses_every_prefix<T>(text: &str, read: impl Fn(&str) -> Result<T, Unreadable>) {
    for end in 0..text.trim_end().len() {
        assert!(read(&text[..end]).is_err(), "{end} bytes of {text}");
    }
}

#[test]
fn the_first_interface_of_each_machine_is_read() {
    let page = instances(INSTANCES).unwrap();
    assert_eq!(page.next, "more");
    let [one, ended] = page.items.as_slice() else {
        panic!("{page:?}");
    };
    let interface = one.interface.as_ref().unwrap();
    assert_eq!(
        (interface.id.as_str(), interface.subnet.as_str()),
        ("eni-1", "subnet-a")
    );
    assert_eq!(interface.primary, Some([10, 0, 0, 7].into()));
    assert_eq!(interface.secondary, [[10, 0, 0, 40].into()].into());
    assert_eq!(interface.description, "first & only");
    assert_eq!(
        ended.interface, None,
        "a machine that is ended has no interface any more"
    );
    refuses_every_prefix(INSTANCES, instances);
}

#[test]
fn how_many_addresses_a_type_can_have_is_read() {
    assert_eq!(types(TYPES).unwrap()["m6i.large"], 10);
    refuses_every_prefix(TYPES, types);
    assert!(
        types(&TYPES.replace("10", "many")).is_err(),
        "what is no number is not nought"
    );
}

#[test]
fn keys_for_a_while_are_read_and_never_shown() {
    let (keys, until) = role(ROLE).unwrap();
    assert_eq!((keys.id.as_str(), until.as_second()), ("ASIA1", 1_794_812_400));
    assert!(!format!("{keys:?}").contains("hidden"));
    refuses_every_prefix(ROLE, role);
}

#[test]
fn a_write_is_done_only_if_its_answer_says_so() {
    let done = |text: &str| done("AssignPrivateIpAddresses", text);
    assert_eq!(done(DONE), Ok(()));
    assert_eq!(done(&DONE.replace("<return>true</return>", "")), Ok(()));
    assert!(done(&DONE.replace("true", "false")).is_err());
    assert!(
        done(&DONE.replace("Assign", "Unassign")).is_err(),
        "of another call"
    );
    assert!(done(FAULT).is_err());
    refuses_every_prefix(DONE, done);
}

#[test]
fn a_fault_is_told_by_its_code() {
    let (code, message) = fault(FAULT).unwrap();
    assert_eq!(code, "PrivateIpAddressLimitExceeded");
    assert!(message.ends_with("limit."));
    for end in 0..FAULT.len() {
        assert_eq!(fault(&FAULT[..end]), None, "{end}");
    }
}

#[test]
fn answers_of_another_kind_are_refused() {
    for text in ["", "<a/>", "<html><body>502</body></html>", "{}", DONE, "\u{0}"] {
        assert!(
            instances(text).is_err() && interfaces(text).is_err() && types(text).is_err(),
            "{text}"
        );
    }
    let bomb = r#"<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>"#;
    assert!(instances(bomb).is_err());
}
