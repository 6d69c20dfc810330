//! What is asked of EC2 and STS. Pure.

use std::net::Ipv4Addr;

use crate::form::Form;

/// So many values one filter can have.
pub(super) const FILTERED: usize = 200;

/// So many types can be asked for at once.
pub(super) const TYPES: usize = 100;

fn ec2(action: &str) -> Form {
    Form::default()
        .with("Action", action)
        .with("Version", "2016-11-15")
}

fn filtered<'a>(action: &str, filter: &str, values: impl IntoIterator<Item = &'a str>, next: &str) -> Form {
    let form = ec2(action)
        .with("Filter.1.Name", filter)
        .with_list("Filter.1.Value", values)
        .with("MaxResults", "1000");
    if next.is_empty() {
        form
    } else {
        form.with("NextToken", next)
    }
}

/// Machines by their names. One that is not there is left out; asked for directly, it would make the call fail.
pub(super) fn instances<'a>(ids: impl IntoIterator<Item = &'a str>, next: &str) -> Form {
    filtered("DescribeInstances", "instance-id", ids, next)
}

/// All interfaces in these subnets.
pub(super) fn interfaces<'a>(subnets: impl IntoIterator<Item = &'a str>, next: &str) -> Form {
    filtered("DescribeNetworkInterfaces", "subnet-id", subnets, next)
}

/// How many addresses an interface of these machine types can have.
pub(super) fn types<'a>(types: impl IntoIterator<Item = &'a str>) -> Form {
    ec2("DescribeInstanceTypes").with_list("InstanceType", types)
}

/// Puts addresses on an interface. None that another interface has is taken from it.
pub(super) fn assign<'a>(interface: &str, addresses: impl IntoIterator<Item = &'a Ipv4Addr>) -> Form {
    ec2("AssignPrivateIpAddresses")
        .with("NetworkInterfaceId", interface)
        .with("AllowReassignment", "false")
        .with_list("PrivateIpAddress", addresses)
}

/// Takes addresses from an interface.
pub(super) fn unassign<'a>(interface: &str, addresses: impl IntoIterator<Item = &'a Ipv4Addr>) -> Form {
    ec2("UnassignPrivateIpAddresses")
        .with("NetworkInterfaceId", interface)
        .with_list("PrivateIpAddress", addresses)
}

/// Keys for a while, for who holds a token of the cluster.
pub(super) fn role(role: &str, token: &str) -> Form {
    Form::default()
        .with("Action", "AssumeRoleWithWebIdentity")
        .with("Version", "2011-06-15")
        .with("RoleArn", role)
        .with("RoleSessionName", "oooi")
        .with("WebIdentityToken", token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_after_the_first_is_asked_for_by_its_token() {
        let first = instances(["i-1", "i-2"], "").encode();
        assert_eq!(
            first,
            "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=instance-id&Filter.1.Value.1=i-1\
             &Filter.1.Value.2=i-2&MaxResults=1000"
        );
        assert_eq!(
            instances(["i-1", "i-2"], "a=b").encode(),
            format!("{first}&NextToken=a%3Db")
        );
    }

    #[test]
    fn an_address_of_another_interface_is_never_taken_over() {
        let form = assign("eni-1", &["10.0.0.5".parse().unwrap()]).encode();
        assert!(
            form.ends_with("eni-1&AllowReassignment=false&PrivateIpAddress.1=10.0.0.5"),
            "{form}"
        );
    }
}
