use super::*;
use crate::mac::Mac;
use crate::testing::fixture::{config, spec};

/// Fixtures are short YAML through the parser that reads real manifests.
fn read(yaml: &str) -> Result<Config, Mistakes> {
    Config::from_spec(&serde_saphyr::from_str(yaml).unwrap(), &[])
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, last)
}

#[test]
fn a_manifest_becomes_a_configuration() {
    let config = read(
        "networkConfig:
  cidr: 10.0.0.0/22
  gateway: 10.0.0.1
  serverIP: 10.0.0.2/22
  dnsServers: [10.0.0.3, 10.0.0.4]
  mtu: 1400
  ntpServers: [10.0.0.5]
  searchDomains: [c.example.com, example.com]
  routes: [{destination: 10.9.0.0/16, gateway: 10.0.0.6}]
leaseConfig:
  rangeStart: 10.0.1.0
  rangeEnd: 10.0.1.255
  leaseTime: 30m
  exclusions: [10.0.1.7, 10.0.1.16 - 10.0.1.31]
  reservations: [{mac: '02:00:00:00:00:01', address: 10.0.1.40, hostname: n1}, {clientId: '01:aa:bb', address: 10.0.2.9}]
options: [{code: 43, value: 0x0102}, {code: 150, value: '10.0.0.8,10.0.0.9'}, {code: 116, value: '1'}]
",
    )
    .unwrap();
    assert_eq!(config.server, Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(config.lease_time, Duration::from_secs(1800));
    assert_eq!(config.pool.size(), 256 - 17);
    assert_eq!(
        config.pool_size(),
        256 - 18,
        "one reservation is inside the range"
    );
    assert!(
        !config.is_dynamic(Ipv4Addr::new(10, 0, 1, 40)) && config.is_dynamic(Ipv4Addr::new(10, 0, 1, 32))
    );
    let option = |code| config.options.get(code).unwrap();
    assert_eq!(option(1), [255, 255, 252, 0]);
    assert_eq!(option(28), [10, 0, 3, 255]);
    assert_eq!(option(6), [10, 0, 0, 3, 10, 0, 0, 4]);
    assert_eq!(option(26), 1400_u16.to_be_bytes());
    assert_eq!(option(15), b"c.example.com");
    assert_eq!(option(119), b"\x01c\x07example\x03com\0\x07example\x03com\0");
    assert_eq!(option(121), [16, 10, 9, 10, 0, 0, 6, 0, 10, 0, 0, 1]);
    assert_eq!((option(43), option(116)), (&[1, 2][..], &[1][..]));
    assert_eq!(option(150), [10, 0, 0, 8, 10, 0, 0, 9]);
    assert_eq!(
        config
            .reservations
            .of(Mac([9; 6]), &[1, 0xaa, 0xbb])
            .unwrap()
            .address,
        Ipv4Addr::new(10, 0, 2, 9)
    );
}

#[test]
fn a_default_route_of_ones_own_is_the_only_one() {
    let made = config(|spec| {
        let route = |destination: &str| oooi_api::dhcp_server::StaticRoute {
            destination: destination.into(),
            gateway: "192.168.100.9".into(),
        };
        spec.network_config.routes = vec![route("0.0.0.0/0"), route("10.0.0.0/8")];
    });
    let expected = [0, 192, 168, 100, 9, 8, 10, 192, 168, 100, 9];
    assert_eq!(made.options.get(121), Some(&expected[..]));
}

#[test]
fn all_mistakes_are_said_at_once_with_their_fields() {
    let mistakes = read(
        "networkConfig:
  cidr: 192.168.100.0/24
  gateway: 192.168.101.1
  serverIP: 192.168.100.2/16
  dnsServers: [nonsense]
  mtu: 68
  searchDomains: ['a..b']
  routes: [{destination: 10.0.0.0/33, gateway: x}]
leaseConfig:
  rangeStart: 192.168.100.0
  rangeEnd: 192.168.99.1
  leaseTime: 3s
  exclusions: [192.168.100.9-192.168.100.3]
  reservations: [{mac: zz, address: 192.168.100.1}, {address: 192.168.100.255}]
  migrationGrace: tomorrow
options: [{code: 3, value: x}, {code: 26, value: '99999'}, {code: 43, value: 0xabc}, {code: 43, value: ''}]
",
    )
    .unwrap_err();
    let paths: Vec<&str> = mistakes.iter().map(|mistake| mistake.path.as_str()).collect();
    for path in [
        "networkConfig.serverIP",
        "networkConfig.dnsServers[0]",
        "networkConfig.mtu",
        "networkConfig.searchDomains[0]",
        "networkConfig.routes[0].destination",
        "networkConfig.routes[0].gateway",
        "leaseConfig.rangeStart",
        "leaseConfig.rangeEnd",
        "leaseConfig.leaseTime",
        "leaseConfig.exclusions[0]",
        "leaseConfig.reservations[0].mac",
        "leaseConfig.reservations[1].address",
        "leaseConfig.reservations[1]",
        "leaseConfig.migrationGrace",
        "options[0].code",
        "options[1].value",
        "options[2].value",
        "options[3]",
    ] {
        let path = format!("spec.{path}");
        assert!(paths.contains(&&*path), "{path} is missing in {paths:#?}");
    }
    assert!(
        mistakes
            .to_string()
            .contains("spec.leaseConfig.leaseTime: a lease of 3s is of no use")
    );
}

#[test]
fn every_prefix_length_from_8_to_30_is_served() {
    for length in 8..=30 {
        let made = config(|spec| {
            spec.network_config.cidr = format!("10.0.0.0/{length}");
            spec.network_config.gateway = "10.0.0.1".into();
            // A /30 has two hosts: its gateway serves, and one client is left.
            spec.network_config.server_ip = if length == 30 { "10.0.0.1" } else { "10.0.0.2" }.into();
            spec.lease_config.range_start = "10.0.0.1".into();
            spec.lease_config.range_end =
                (Ipv4Addr::from(0x0a00_0000 | ((u32::MAX >> length) - 1))).to_string();
        });
        assert_eq!(
            made.pool.size(),
            (1 << (32 - length)) - if length == 30 { 3 } else { 4 }
        );
        assert!(!made.is_dynamic(Ipv4Addr::new(10, 0, 0, 1)) && !made.is_dynamic(made.server));
    }
    for length in [7, 31, 32] {
        let spec = spec(|spec| spec.network_config.cidr = format!("192.168.100.0/{length}"));
        assert!(
            Config::from_spec(&spec, &[])
                .unwrap_err()
                .to_string()
                .contains("8 to 30")
        );
    }
}

#[test]
fn a_replica_knows_itself_by_its_local_address() {
    let spec = spec(|spec| spec.network_config.additional_server_ips = vec!["192.168.100.4".into()]);
    assert_eq!(
        Config::from_spec(&spec, &[address(4)]).unwrap().server,
        address(4)
    );
    assert_eq!(
        Config::from_spec(&spec, &[address(99)]).unwrap().server,
        address(2)
    );
}

#[test]
fn overlapping_exclusions_are_counted_once_and_an_empty_pool_is_refused() {
    let made = config(|spec| {
        spec.lease_config.exclusions = vec![
            "192.168.100.12-192.168.100.14".into(),
            "192.168.100.1-192.168.100.13".into(),
            "10.0.0.1".into(),
        ];
    });
    assert_eq!(made.pool.size(), 6);
    assert!(!made.pool.contains(address(14)) && made.pool.contains(address(15)));
    let spec = spec(|spec| spec.lease_config.exclusions = vec!["192.168.100.0-192.168.100.255".into()]);
    assert!(
        Config::from_spec(&spec, &[])
            .unwrap_err()
            .to_string()
            .contains("nothing is left")
    );
}

#[test]
fn a_form_that_contradicts_the_option_is_refused() {
    use oooi_api::dhcp_server::{DhcpOption, OptionFormat};
    let made = |code, value: &str, format| {
        let spec = spec(|spec| {
            spec.options = vec![DhcpOption {
                code,
                value: value.into(),
                format,
            }];
        });
        Config::from_spec(&spec, &[]).map(|config| config.options.get(code as u8).unwrap().to_vec())
    };
    assert_eq!(
        made(66, "10.0.0.1", None).unwrap(),
        b"10.0.0.1",
        "a name is text whatever it looks like"
    );
    assert_eq!(
        made(224, "10.0.0.1", Some(OptionFormat::Text)).unwrap(),
        b"10.0.0.1"
    );
    assert_eq!(made(224, "10.0.0.1", None).unwrap(), [10, 0, 0, 1]);
    assert_eq!(made(224, "beef", Some(OptionFormat::Hex)).unwrap(), [0xbe, 0xef]);
    assert_eq!(
        made(119, "a.example, b.example", None).unwrap(),
        b"\x01a\x07example\0\x01b\x07example\0"
    );
    assert!(made(42, "0x0102", None).is_err(), "two bytes are no address");
    for value in ["10.0.0.0/8", "0x080a0a000001"] {
        let mistakes = made(121, value, None).unwrap_err().to_string();
        assert!(mistakes.contains("write networkConfig.routes"), "{mistakes}");
    }
    assert!(made(53, "1", None).is_err());
    assert!(made(6, "192.168.100.9", None).is_err(), "dnsServers says it");
    assert!(made(300, "x", None).is_err());
}
