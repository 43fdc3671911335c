//! A chronyd that is none, over both kinds of sockets, and numbers.

use super::*;
use std::os::unix::net::UnixDatagram;
use std::thread;

/// A number as chronyd writes it.
fn bits(value: f64) -> u32 {
    (-64..64)
        .map(|exponent| (exponent, (value / f64::from(exponent - 25).exp2()).round()))
        .find(|(_, coefficient)| (-16_777_216.0..16_777_216.0).contains(coefficient))
        .map_or(0, |(exponent, coefficient)| {
            ((exponent as u32) << 25) | (coefficient as i32 as u32 & 0x01ff_ffff)
        })
}

const GOOD: Tracking = Tracking {
    reference: 0x0a00_0001,
    stratum: 3,
    leap: 0,
    measured: 1_700_000_000_000_000_123,
    correction: -30e-6,
    last_offset: 20e-6,
    rms_offset: 5e-6,
    frequency_ppm: -17.25,
    residual_ppm: 0.25,
    skew_ppm: 0.5,
    root_delay: 400e-6,
    root_dispersion: 100e-6,
    interval: 64.0,
};

fn reply(tracking: &Tracking, request: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; BYTES];
    reply[..2].copy_from_slice(&[VERSION, 2]);
    reply[4..6].copy_from_slice(&request[4..6]);
    reply[6..8].copy_from_slice(&TRACKING_FOLLOWS.to_be_bytes());
    reply[16..20].copy_from_slice(&request[8..12]);
    reply[28..32].copy_from_slice(&tracking.reference.to_be_bytes());
    reply[52..54].copy_from_slice(&tracking.stratum.to_be_bytes());
    reply[54..56].copy_from_slice(&tracking.leap.to_be_bytes());
    let (seconds, rest) = (tracking.measured / 1_000_000_000, tracking.measured % 1_000_000_000);
    reply[56..64].copy_from_slice(&seconds.to_be_bytes());
    reply[64..68].copy_from_slice(&(rest as u32).to_be_bytes());
    let numbers = [
        tracking.correction,
        tracking.last_offset,
        tracking.rms_offset,
        tracking.frequency_ppm,
        tracking.residual_ppm,
        tracking.skew_ppm,
        tracking.root_delay,
        tracking.root_dispersion,
        tracking.interval,
    ];
    for (place, value) in reply[68..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&bits(value).to_be_bytes());
    }
    reply
}

#[test]
fn numbers() {
    for value in [0.0, 1.0, -1.0, 0.5, 1e-9, -3.25e-6, 1234.5, 83_333.25, 1e-7] {
        let read = number(bits(value));
        assert!((read - value).abs() <= value.abs() * 1e-7, "{value} {read}");
    }
    // By hand: 2^24 - 1 with the exponent 1; -2^24 with the exponent 0; the smallest exponent.
    assert_eq!(number(0x02ff_ffff), 1.0 - 2_f64.powi(-24));
    assert_eq!(number(0x0100_0000), -0.5);
    assert_eq!(number(0x8000_0001), 2_f64.powi(-64 - 25));
    assert_eq!((nanoseconds(f64::NAN), nanoseconds(1e300)), (0, u64::MAX));
}

#[test]
fn bounds_are_what_chrony_defines() {
    // 30 us to slew, 200 us to the root, 100 us on the way.
    assert!((330_000..330_002).contains(&GOOD.max_error_ns()), "{}", GOOD.max_error_ns());
    let off = Tracking { last_offset: -50e-6, ..GOOD };
    assert!((350_000..350_002).contains(&off.max_error_ns()));
    // The kernel corrects what chrony measured, and slews by 3 ppm.
    assert_eq!((GOOD.drift_ppb(), GOOD.slew_ppb(17.25)), (1_750, 0));
    assert_eq!(GOOD.slew_ppb(20.25), 3_000);
    assert_eq!(GOOD.slew_ppb(-82_750.0), 82_767_250);
    let first = Tracking { skew_ppm: 1e6, ..GOOD };
    assert_eq!((first.drift_ppb(), first.slew_ppb(f64::MAX)), (999_999_999, 999_999_999));
    assert!((35_000..35_002).contains(&GOOD.estimated_error_ns()));
}

#[test]
fn whom_it_follows() {
    let now = GOOD.measured + 300_000_000_000;
    assert_eq!(GOOD.status(now), Status::Synchronized);
    assert_eq!(GOOD.status(now + 300_000_000_000), Status::FreeRunning);
    // Set back meanwhile.
    assert_eq!(GOOD.status(0), Status::Synchronized);
    for nobody in [
        Tracking { leap: 3, ..GOOD },
        Tracking { stratum: 0, ..GOOD },
        Tracking { reference: 0, ..GOOD },
        Tracking { reference: LOCAL, ..GOOD },
    ] {
        assert_eq!(nobody.status(now), Status::Unknown, "{nobody:?}");
    }
    assert_eq!(Tracking { leap: 2, ..GOOD }.leap(), Leap::DeletionAhead);
}

/// Whatever comes: no panic, and bounds that a page can hold.
#[test]
fn any_reply() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) as u32
    };
    let mut request = [0; BYTES];
    request[4..6].copy_from_slice(&TRACKING.to_be_bytes());
    for _ in 0..20_000 {
        let mut packet = reply(&GOOD, &request);
        for _ in 0..next() % 12 {
            let at =
                if next() % 4 == 0 { next() as usize % BYTES } else { 28 + next() as usize % 76 };
            packet[at] = next() as u8;
        }
        let len = if next() % 8 == 0 { next() as usize % (BYTES + 1) } else { BYTES };
        if let Ok(Some(tracking)) = Tracking::of(&packet[..len], &request) {
            assert!(tracking.drift_ppb().max(tracking.slew_ppb(f64::from(next()))) < 1_000_000_000);
            assert!(tracking.max_error_ns() >= tracking.correction.abs().min(1.0) as u64);
            let _ = (tracking.status(u64::from(next()) << 31), tracking.estimated_error_ns());
        }
    }
}

#[test]
fn an_answer_over_udp() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let place = Place::parse(&socket.local_addr().unwrap().to_string()).unwrap();
    let chronyd = thread::spawn(move || {
        let mut request = [0; 1024];
        let (len, from) = socket.recv_from(&mut request).unwrap();
        assert_eq!((len, &request[..8]), (BYTES, &[6, 1, 0, 0, 0, 33, 0, 0][..]));
        // Nonsense, another's answer, a short one; then the right one.
        let right = reply(&GOOD, &request);
        let mut late = right.clone();
        late[19] ^= 1;
        for packet in [&b"?"[..], &late, &[0; 200], &right] {
            socket.send_to(packet, from).unwrap();
        }
    });
    let absent = Place::Socket(PathBuf::from("/no/such/place/chronyd.sock"));
    let places = [absent, place];
    let (tracking, whose) = Tracking::query(&places).unwrap();
    chronyd.join().unwrap();
    assert_eq!(whose, &places[1]);
    assert_eq!((tracking.reference, tracking.stratum), (GOOD.reference, GOOD.stratum));
    assert_eq!(tracking.measured, GOOD.measured);
    assert!(tracking.max_error_ns().abs_diff(GOOD.max_error_ns()) < 5);
    assert_eq!((tracking.frequency_ppm, tracking.interval), (-17.25, 64.0));
}

#[test]
fn an_answer_over_a_socket() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("chronyd.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    let place = [Place::Socket(path)];
    // The receiver does not read: the sender is not blocked for long.
    let began = Instant::now();
    assert!(Tracking::query(&place).unwrap_err().contains("chronyd.sock"));
    assert!(began.elapsed() < Duration::from_secs(20));
    let chronyd = thread::spawn(move || {
        let mut request = [0; 1024];
        // The first one is of a socket that is gone.
        for _ in 0..2 {
            let (_, from) = socket.recv_from(&mut request).unwrap();
            let mut refusal = reply(&GOOD, &request);
            refusal[9] = 2;
            let _ = socket.send_to(&refusal, from.as_pathname().unwrap());
        }
    });
    let why = Tracking::query(&place).unwrap_err();
    chronyd.join().unwrap();
    assert!(why.contains("status 2"), "{why}");
    // (3)
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn nobody_there_is_known_at_once() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let began = Instant::now();
    assert!(Tracking::query(&[Place::Address(free)]).is_err());
    assert!(Tracking::query(&[]).is_err());
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(Place::parse("chrony").is_err() && Place::parse("127.0.0.1").is_err());
}

#[test]
fn the_port_is_asked_while_root_alone_may_be_there() {
    for first in ["324\n", "1024", "65535"] {
        let (places, unasked) = Place::usual_with(Some(first));
        assert_eq!((places.len(), unasked), (3, None), "{first}");
        assert_eq!(places[1].to_string(), "127.0.0.1:323");
        assert_eq!(places[2].to_string(), "[::1]:323");
    }
    for first in [Some("323\n"), Some("0"), Some("many"), None] {
        let (places, unasked) = Place::usual_with(first);
        assert!(matches!(places[..], [Place::Socket(_)]), "{first:?}");
        assert!(unasked.unwrap().contains("--chrony 127.0.0.1:323"), "{first:?}");
    }
}

#[test]
fn what_was_sent_before_the_question_is_no_answer() {
    let [chronyd, stranger, socket] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let request = Tracking::request(7);
    let forged = reply(&Tracking { stratum: 1, ..GOOD }, &request);
    for _ in 0..3 {
        stranger.send_to(&forged, socket.local_addr().unwrap()).unwrap();
    }
    let address = chronyd.local_addr().unwrap();
    let to = socket.local_addr().unwrap();
    let answers = thread::spawn(move || {
        chronyd.recv_from(&mut [0; 1024]).unwrap();
        chronyd.send_to(&reply(&GOOD, &request), to).unwrap();
    });
    let tracking = ask_over(&socket, address, &request);
    answers.join().unwrap();
    match tracking {
        Ok(tracking) => assert_eq!(tracking.stratum, GOOD.stratum),
        // On a machine with much to do the answer came too late.
        Err(error) => assert!(is_late(&error), "{error}"),
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

#[test]
fn nobody_can_guess_a_sequence_number() {
    let chronyd = UdpSocket::bind("127.0.0.1:0").unwrap();
    let place = [Place::Address(chronyd.local_addr().unwrap())];
    let numbers = [(); 4].map(|()| {
        let _ = Tracking::query(&place);
        let mut request = [0; 1024];
        let (_, from) = chronyd.recv_from(&mut request).unwrap();
        assert!(from.ip().is_loopback());
        u32::from_be_bytes(request[8..12].try_into().unwrap())
    });
    // A counter would not differ by more. By chance random numbers do not once in 2^56 runs.
    assert!(numbers.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > 1 << 12), "{numbers:?}");
}
