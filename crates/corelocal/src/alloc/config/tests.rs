//! Tests of `config.rs`.

use super::*;

#[test]
fn numbers_of_bytes() {
    for (text, number) in [
        (&b"1"[..], Some(1)),
        (b"512K", Some(512 << 10)),
        (b"3m", Some(3 << 20)),
        (b"1G", Some(1 << 30)),
        (b"", None),
        (b"K", None),
        (b"0", None),
        (b"-1", None),
        (b"99999999999999999999", None),
        (b"9999G", None),
        (b"1.5M", None),
    ] {
        assert_eq!(bytes(text), number, "{}", text.escape_ascii());
    }
}

#[test]
fn words() {
    let words: [(&[u8], u32); 16] = [
        (b"", 0),
        (b"stats", COUNT),
        (b"stats:json", COUNT),
        (b"stats-signal:USR1", COUNT),
        (b"count", COUNT),
        (b"background:no", 0),
        (b"check", CHECK),
        (b"guard", GUARD),
        (b"guard:7", GUARD),
        (b"guard:0", 0),
        (b"guard:x", 0),
        (b"profile", ALL_OF_PROFILE),
        (b"profile:/a/b", ALL_OF_PROFILE),
        (b"profiles", 0),
        (b"profile-rate:1", 0),
        (b"nodes:2", 0),
    ];
    for (word, mode) in words {
        assert_eq!(mode_of(word), mode, "{}", word.escape_ascii());
    }
}

#[test]
fn rates() {
    assert_eq!(
        (guard_rate_of(b"guard"), guard_rate_of(b"guard:50")),
        (Some(DEFAULT_GUARD_RATE), Some(50))
    );
    for word in [&b"guard:"[..], b"guard:0", b"guards", b"guard:x", b"guard:99999999999", b""] {
        assert_eq!(guard_rate_of(word), None);
    }
}

#[test]
fn numbers_of_nodes() {
    assert_eq!(nodes_of(b"nodes:no"), Some(1));
    assert_eq!((nodes_of(b"nodes:2"), nodes_of(b"nodes:8")), (Some(2), Some(8)));
    for word in [&b"nodes:1"[..], b"nodes:9", b"nodes:22", b"nodes:", b"nodes", b"node:2", b""] {
        assert_eq!(nodes_of(word), None, "{}", word.escape_ascii());
    }
}
