use proptest::prelude::*;

use super::*;

/// Captured from real clients that asked for `api.demo.example.com`, or for an address where nothing is named.
const CAPTURED: [(&str, Option<&str>, &[u8]); 6] = [
    (
        "openssl, TLS 1.3",
        NAME,
        include_bytes!("../tests/hellos/openssl-tls13.bin"),
    ),
    (
        "openssl, TLS 1.2",
        NAME,
        include_bytes!("../tests/hellos/openssl-tls12.bin"),
    ),
    (
        "openssl, no name",
        None,
        include_bytes!("../tests/hellos/openssl-no-sni.bin"),
    ),
    (
        "curl, mixed case",
        NAME,
        include_bytes!("../tests/hellos/curl.bin"),
    ),
    (
        "curl, an address",
        None,
        include_bytes!("../tests/hellos/curl-ip.bin"),
    ),
    ("Go, post-quantum", NAME, include_bytes!("../tests/hellos/go.bin")),
];
const NAME: Option<&str> = Some("api.demo.example.com");

fn name_of(bytes: &[u8]) -> Option<String> {
    parse_client_hello(bytes)
        .unwrap()
        .server_name
        .map(|name| name.to_string())
}

/// The same handshake bytes in records that end at each of `cuts`.
fn in_records(hello: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let handshake = &hello[5..];
    let mut bytes = Vec::new();
    let mut start = 0;
    for end in cuts.into_iter().chain([handshake.len()]) {
        bytes.extend_from_slice(&[HANDSHAKE, 3, 1]);
        bytes.extend_from_slice(&u16::try_from(end - start).unwrap().to_be_bytes());
        bytes.extend_from_slice(&handshake[start..end]);
        start = end;
    }
    bytes
}

/// A hello with these extensions.
fn hello_with(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let sized = |data: &[u8]| [&u16::try_from(data.len()).unwrap().to_be_bytes(), data].concat();
    let list: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, data)| [kind.to_be_bytes().to_vec(), sized(data)].concat())
        .collect();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(sized(&[0x0a, 0x0a, 0x13, 0x01])); // GREASE, then TLS_AES_128_GCM_SHA256
    body.extend([1, 0]);
    body.extend(sized(&list));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let handshake = [&[CLIENT_HELLO], &length[1..], &body].concat();
    [&[HANDSHAKE, 3, 1], sized(&handshake).as_slice()].concat()
}

fn sni(name: &str) -> (u16, Vec<u8>) {
    let length = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    let data = [
        &length(name.len() + 3)[..],
        &[HOST_NAME],
        &length(name.len())[..],
        name.as_bytes(),
    ]
    .concat();
    (SERVER_NAME, data)
}

#[test]
fn the_name_of_every_captured_client_is_read() {
    for (client, name, bytes) in CAPTURED {
        assert_eq!(name_of(bytes).as_deref(), name, "{client}");
    }
}

#[test]
fn every_prefix_of_a_captured_hello_is_incomplete() {
    for (client, _, bytes) in CAPTURED {
        for end in 0..bytes.len() {
            assert_eq!(
                parse_client_hello(&bytes[..end]),
                Err(Incomplete),
                "{client}, {end} bytes"
            );
        }
    }
}

#[test]
fn a_hello_over_two_records_is_read_wherever_it_is_cut() {
    for (client, name, bytes) in CAPTURED {
        for cut in 1..bytes.len() - 5 {
            let split = in_records(bytes, [cut]);
            assert_eq!(name_of(&split).as_deref(), name, "{client}, cut at {cut}");
            assert_eq!(parse_client_hello(&split[..split.len() - 1]), Err(Incomplete));
        }
    }
}

#[test]
fn a_hello_in_records_of_single_bytes_is_read_and_each_prefix_is_incomplete() {
    let (_, name, bytes) = CAPTURED[0];
    let split = in_records(bytes, 1..bytes.len() - 5);
    assert_eq!(name_of(&split).as_deref(), name);
    for end in 0..split.len() {
        assert_eq!(parse_client_hello(&split[..end]), Err(Incomplete), "{end} bytes");
    }
}

#[test]
fn what_follows_the_hello_is_left_alone() {
    let early_data = [CAPTURED[0].2, &[0x17, 3, 3, 0, 4, 1, 2, 3, 4]].concat();
    assert_eq!(name_of(&early_data).as_deref(), NAME);
}

#[test]
fn grease_is_stepped_over_and_with_ech_the_outer_name_counts() {
    let bytes = hello_with(&[
        (0x5a5a, vec![]),
        (ENCRYPTED_CLIENT_HELLO, vec![0; 200]),
        sni("Public.Example"),
        (0xfafa, vec![0]),
    ]);
    let hello = parse_client_hello(&bytes).unwrap();
    assert_eq!(hello.server_name.unwrap().as_str(), "public.example");
    assert!(hello.encrypted);
}

#[test]
fn a_three_kilobyte_hello_is_read() {
    let bytes = hello_with(&[(0x0033, vec![9; 3000]), sni("api.example")]);
    assert_eq!(name_of(&bytes).as_deref(), Some("api.example"));
}

#[test]
fn other_protocols_are_refused_at_their_first_bytes() {
    for (what, bytes, expected) in [
        ("HTTP", &b"G"[..], NotTls),
        ("SSH", b"SSH-2.0-x", NotTls),
        ("a TLS alert", &[21, 3, 3, 0, 2, 1, 0], NotTls),
        ("a wrong major version", &[22, 2], NotTls),
        ("a record above the limit", &[22, 3, 1, 0xff, 0xff], NotTls),
        ("SSLv2", &[0x80, 0x2e, 1, 0, 2], SslV2),
        ("high bytes that are not SSLv2", &[0xff, 0xff, 0xff], NotTls),
        (
            "an empty record",
            &[22, 3, 1, 0, 0],
            Malformed("an empty handshake record"),
        ),
        (
            "another message",
            &[22, 3, 1, 0, 4, 2],
            Malformed("the first handshake message is no client hello"),
        ),
        (
            "a hello of 16 MiB",
            &[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff],
            TooLarge,
        ),
    ] {
        assert_eq!(parse_client_hello(bytes), Err(expected), "{what}");
    }
}

#[test]
fn a_hello_that_never_ends_is_too_large() {
    let mut bytes = in_records(&hello_with(&[(0x33, vec![0; 16_000])]), 1..8_000);
    bytes.truncate(MAX_RECEIVED);
    assert_eq!(parse_client_hello(&bytes[..MAX_RECEIVED - 1]), Err(Incomplete));
    assert_eq!(parse_client_hello(&bytes), Err(TooLarge));
}

#[test]
fn ambiguous_names_are_refused() {
    let twice = [sni("a.example").1, sni("b.example").1];
    let two_in_a_list = [&[0, 24][..], &twice[0][2..], &twice[1][2..]].concat();
    for (extensions, reason) in [
        (
            vec![sni("a.example"), sni("b.example")],
            "two server name extensions",
        ),
        (vec![(SERVER_NAME, two_in_a_list)], "two server names"),
        (
            vec![(SERVER_NAME, vec![0, 0])],
            "server name list with a wrong length",
        ),
        (vec![(SERVER_NAME, vec![])], "server name list cut short"),
        (
            vec![(SERVER_NAME, vec![0, 4, 0, 0, 9, b'a'])],
            "server name cut short",
        ),
        (vec![sni("")], "a server name that is no DNS name"),
        (vec![sni("a\n.example")], "a server name that is no DNS name"),
    ] {
        assert_eq!(
            parse_client_hello(&hello_with(&extensions)),
            Err(Malformed(reason))
        );
    }
}

#[test]
fn a_hello_without_extensions_has_no_name() {
    let mut bytes = hello_with(&[]);
    let end = bytes.len() - 2;
    bytes.truncate(end); // the empty list of extensions
    bytes[4] -= 2;
    bytes[8] -= 2;
    assert_eq!(name_of(&bytes), None);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_read_a_record_twice(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600), from in 0..6usize, at in 0..600usize, to in any::<u8>(),
    ) {
        let _ = parse_client_hello(&bytes);
        let mut captured = CAPTURED[from].2.to_vec();
        let at = at % captured.len();
        captured[at] = to;
        let _ = parse_client_hello(&captured);
        captured.truncate(at);
        captured.append(&mut bytes);
        let _ = parse_client_hello(&captured);
    }
}
