//! A client of chronyd: asks for its tracking report over its own protocol.
//!
//! The crate for that protocol (chrony-candm) is under the GPL, version 2 only, and brings an asynchronous runtime.
//! This module sends one packet and receives one, of version 6, which chronyd speaks since 3.0. All numbers are big
//! endian.
//!
//! | request: offset | field | reply: offset | field |
//! |---|---|---|---|
//! | 0, 1 | 6; 1: a request | 0, 1 | 6; 2: a reply |
//! | 4 | 33: tracking | 4, 6 | 33; 5: tracking follows |
//! | 8 | sequence number | 8, 16 | status, 0 is good; the request's sequence number |
//! | to 104 | zeros: no shorter than the reply | 28 | reference id, 0 for none |
//! | | | 52, 54 | stratum; leap: 3 for unsynchronised |
//! | | | 56 | reference time: seconds in two words, nanoseconds |
//! | | | 68 ... 100 | numbers, four bytes each: see [`Tracking`] |
//!
//! A number has a signed exponent of 7 bits and a signed coefficient of 25: coefficient * 2^(exponent - 25).
//!
//! Any user can send to a socket of this process, and a UDP port from `net.ipv4.ip_unprivileged_port_start` on can be
//! any user's. So a reply is accepted as chronyd's only by these rules:
//!
//! Invariants:
//! 1. A reply must have the request's sequence number, which is random, and come from the address that was asked.
//! 2. A request waits for at most [`PATIENCE`]. A missing socket or port fails at once.
//! 3. The socket's file, without which chronyd could not reply, is removed (`reply_socket.rs`).
//! 4. chronyd's UDP port is asked, unless the user says so, only while root alone can have it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use corelocal::clock::page::{Leap, Status};

use corelocal_support::output::path_line;

use super::bound;
use super::reply_socket::ReplySocket;

const VERSION: u8 = 6;
const TRACKING: u16 = 33;
const TRACKING_FOLLOWS: u16 = 5;
const BYTES: usize = 104;

/// chronyd answers within a millisecond or not at all.
const PATIENCE: Duration = Duration::from_millis(100);

/// The UDP port that chronyd listens on.
const PORT: u16 = 323;

/// The reference of a chronyd without a source that is configured to answer as if it were synchronised.
const LOCAL: u32 = 0x7f7f_0101;

/// The error of an oscillator's rate that chrony adds to what it measured (`maxclockerror`), in parts per million.
const UNMEASURED_PPM: f64 = 1.0;

/// A place where a chronyd may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket.
    Socket(PathBuf),
    /// An address with a port.
    Address(SocketAddr),
}

impl Place {
    /// Returns where it answers unless it is told otherwise, and why its port is not among these places if it is not.
    /// The socket is for its own user and root.
    pub fn usual() -> (Vec<Place>, Option<String>) {
        let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        Place::usual_with(first.ok().as_deref())
    }

    /// Returns the same, where this is the first port that any user may have, as the kernel writes it. (4)
    fn usual_with(first_of_all: Option<&str>) -> (Vec<Place>, Option<String>) {
        let address = |ip| Place::Address(SocketAddr::new(ip, PORT));
        let mut places = vec![Place::Socket(PathBuf::from("/run/chrony/chronyd.sock"))];
        let first: Option<u32> = first_of_all.and_then(|first| first.trim().parse().ok());
        let why = match first {
            Some(first) if first > PORT.into() => {
                places.push(address(IpAddr::V4(Ipv4Addr::LOCALHOST)));
                places.push(address(IpAddr::V6(Ipv6Addr::LOCALHOST)));
                return (places, None);
            }
            Some(first) => format!(
                "any user may answer there, as net.ipv4.ip_unprivileged_port_start is {first}; set it above {PORT}"
            ),
            None => {
                "/proc/sys/net/ipv4/ip_unprivileged_port_start, which says if any user may answer \
                     there, cannot be read; mount /proc"
                    .to_owned()
            }
        };
        let hint = format!("or give --chrony 127.0.0.1:{PORT} to accept any answer there");
        (places, Some(format!("UDP port {PORT} was not asked: {why}, {hint}")))
    }

    /// Reads it as on the command line: `/run/chrony/chronyd.sock`, `127.0.0.1:323`.
    ///
    /// # Errors
    /// A sentence.
    pub fn parse(text: &str) -> Result<Place, String> {
        if text.contains('/') {
            return Ok(Place::Socket(PathBuf::from(text)));
        }
        let address = text.parse().map(Place::Address);
        address.map_err(|_| {
            "give the path of a socket, or an address such as 127.0.0.1:323".to_owned()
        })
    }

    fn query(&self, request: &[u8; BYTES]) -> io::Result<Tracking> {
        match self {
            Place::Socket(path) => {
                let until = Instant::now() + PATIENCE;
                let accept = |reply: &[u8]| Tracking::of(reply, request);
                let socket = ReplySocket::connected_to(path)?;
                socket.datagram.set_nonblocking(false)?;
                socket.datagram.set_read_timeout(Some(PATIENCE))?;
                socket.datagram.set_write_timeout(Some(PATIENCE))?;
                socket.datagram.send(request)?;
                receive(until, |reply| socket.datagram.recv(reply), accept)
            }
            Place::Address(address) => {
                // Of this machine's chronyd no other machine can pose as the sender.
                let ip: IpAddr = match (address, address.ip().is_loopback()) {
                    (SocketAddr::V4(_), true) => Ipv4Addr::LOCALHOST.into(),
                    (SocketAddr::V4(_), false) => Ipv4Addr::UNSPECIFIED.into(),
                    (SocketAddr::V6(_), true) => Ipv6Addr::LOCALHOST.into(),
                    (SocketAddr::V6(_), false) => Ipv6Addr::UNSPECIFIED.into(),
                };
                ask_over(&UdpSocket::bind((ip, 0))?, *address, request)
            }
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Socket(path) => f.write_str(&path_line(path)),
            Place::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Asks at an address over a socket to which anybody may have sent already. (1)
fn ask_over(
    socket: &UdpSocket,
    address: SocketAddr,
    request: &[u8; BYTES],
) -> io::Result<Tracking> {
    // From here on the kernel drops what others send. What came before takes the room of the reply.
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    while socket.recv(&mut [0]).is_ok() {}
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(request)?;
    let receive_from_it = |reply: &mut [u8]| {
        let (len, from) = socket.recv_from(reply)?;
        // The kernel may still have been delivering another's.
        let is_its = (from.ip(), from.port()) == (address.ip(), address.port());
        Ok(if is_its { len } else { 0 })
    };
    let until = Instant::now() + PATIENCE;
    receive(until, receive_from_it, |reply| Tracking::of(reply, request))
}

/// Returns a number that other users cannot guess.
fn random() -> io::Result<u32> {
    let mut bytes = [0; 4];
    // SAFETY: the kernel writes at most `len` bytes to `bytes`.
    let len =
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    match usize::try_from(len) {
        Ok(len) if len == bytes.len() => Ok(u32::from_ne_bytes(bytes)),
        // At most 256 bytes come at once or not at all.
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Returns the first reply that is one. (1), (2)
fn receive(
    until: Instant,
    mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    accept: impl Fn(&[u8]) -> io::Result<Option<Tracking>>,
) -> io::Result<Tracking> {
    let mut reply = [0; 1024];
    while Instant::now() < until {
        let len = match receive(&mut reply) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            len => len?,
        };
        if let Some(tracking) = accept(&reply[..len])? {
            return Ok(tracking);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// chronyd's report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tracking {
    /// 0: it has no source.
    pub reference: u32,
    /// 0: it has no source.
    pub stratum: u16,
    /// The leap status as in NTP: 1 and 2 for a leap second, 3 for unsynchronised.
    pub leap: u16,
    /// The time of the last measurement, in nanoseconds since 1970.
    pub measured: u64,
    /// The correction that is still to be slewed, in seconds.
    pub correction: f64,
    /// The offset at the last measurement, in seconds.
    pub last_offset: f64,
    /// Likewise, of many measurements.
    pub rms_offset: f64,
    /// The frequency error that is corrected, in parts per million.
    pub frequency_ppm: f64,
    /// The residual: the coming change of that correction, in parts per million.
    pub residual_ppm: f64,
    /// The error bound of the frequency (skew), in parts per million.
    pub skew_ppm: f64,
    /// The delay to the root and back, in seconds.
    pub root_delay: f64,
    /// The dispersion of the root and of all servers on the way, in seconds.
    pub root_dispersion: f64,
    /// The time between the last two measurements, in seconds.
    pub interval: f64,
}

impl Tracking {
    /// Asks at each place until one answers; the answer, and whose it is.
    ///
    /// # Errors
    /// Why the last place gave none.
    pub fn query(places: &[Place]) -> Result<(Tracking, &Place), String> {
        let mut why = "no address of chronyd is known".to_owned();
        for place in places {
            let asked = random()
                .map_err(|error| io::Error::new(error.kind(), format!("no random number: {error}")))
                .and_then(|sequence| place.query(&Tracking::request(sequence)));
            match asked {
                Ok(tracking) => return Ok((tracking, place)),
                Err(error) => why = format!("chronyd does not answer at {place}: {error}"),
            }
        }
        Err(why)
    }

    fn request(sequence: u32) -> [u8; BYTES] {
        let mut request = [0; BYTES];
        request[..2].copy_from_slice(&[VERSION, 1]);
        request[4..6].copy_from_slice(&TRACKING.to_be_bytes());
        request[8..12].copy_from_slice(&sequence.to_be_bytes());
        request
    }

    /// Returns `None` if it is not for this request.
    fn of(reply: &[u8], request: &[u8; BYTES]) -> io::Result<Option<Tracking>> {
        let Some(reply) = reply.get(..28).filter(|head| head[..2] == [VERSION, 2]).map(|_| reply)
        else {
            return Ok(None);
        };
        let half = |at: usize| u16::from_be_bytes([reply[at], reply[at + 1]]);
        if reply[4..6] != request[4..6] || reply[16..20] != request[8..12] {
            return Ok(None);
        }
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        match (half(6), half(8)) {
            (TRACKING_FOLLOWS, 0) if reply.len() >= BYTES => {}
            (_, status) => return Err(bad(format!("it refuses the request with status {status}"))),
        }
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| reply[at + byte]));
        let seconds = u64::from(word(56)) << 32 | u64::from(word(60));
        let measured =
            seconds.checked_mul(1_000_000_000).map(|at| at.saturating_add(word(64).into()));
        let number = |nth: usize| number(word(68 + 4 * nth));
        let tracking = Tracking {
            reference: word(28),
            stratum: half(52),
            leap: half(54),
            measured: measured.ok_or_else(|| bad("its reference time is impossible".to_owned()))?,
            correction: number(0),
            last_offset: number(1),
            rms_offset: number(2),
            frequency_ppm: number(3),
            residual_ppm: number(4),
            skew_ppm: number(5),
            root_delay: number(6),
            root_dispersion: number(7),
            interval: number(8),
        };
        Ok(Some(tracking))
    }

    /// Returns how far the clock may be off, in nanoseconds, rounded up.
    ///
    /// As chrony defines it: what is still to be slewed, half the way to the root, and what the root and all
    /// on the way may be off by; for the first, the last offset where that is more.
    pub fn max_error_ns(&self) -> u64 {
        let off = self.correction.abs().max(self.last_offset.abs());
        nanoseconds(off + self.root_delay.max(0.0) / 2.0 + self.root_dispersion.max(0.0))
    }

    /// Returns how far the rate of truth may be from the one that follows from the frequency, in parts per billion.
    /// Below a billion, which means nothing: before it has measured often, chrony says so.
    pub fn drift_ppb(&self) -> u32 {
        let ppm = self.skew_ppm.abs() + self.residual_ppm.abs() + UNMEASURED_PPM;
        bound::ppb(ppm * 1e-6)
    }

    /// Returns how fast the clock is being slewed, in parts per billion, if the kernel corrects its rate by so many
    /// parts per million now: what is more than chrony's own correction.
    pub fn slew_ppb(&self, kernel_ppm: f64) -> u32 {
        bound::ppb((kernel_ppm + self.frequency_ppm).abs() * 1e-6)
    }

    /// Returns how far it is off by estimation, in nanoseconds.
    pub fn estimated_error_ns(&self) -> u64 {
        nanoseconds(self.correction.abs() + self.rms_offset.abs())
    }

    /// Returns whether the clock is to be trusted at this time, in nanoseconds since 1970.
    pub fn status(&self, now: u64) -> Status {
        /// The number of failed measurements after which chronyd no longer corrects the clock, and the seconds before
        /// which this is not checked.
        const MISSED: f64 = 8.0;
        const LEAST: f64 = 64.0;
        if !self.follows_somebody() {
            return Status::Unknown;
        }
        let age = now.saturating_sub(self.measured) as f64 / 1e9;
        let is_late = age > (self.interval * MISSED).max(LEAST);
        if is_late { Status::FreeRunning } else { Status::Synchronized }
    }

    fn follows_somebody(&self) -> bool {
        self.leap < 3 && self.stratum > 0 && ![0, LOCAL].contains(&self.reference)
    }

    /// Returns a leap second at the end of the day.
    pub fn leap(&self) -> Leap {
        match self.leap {
            1 => Leap::InsertionAhead,
            2 => Leap::DeletionAhead,
            _ => Leap::None,
        }
    }
}

fn number(bits: u32) -> f64 {
    let exponent = (bits as i32) >> 25;
    let coefficient = ((bits << 7) as i32) >> 7;
    f64::from(coefficient) * f64::from(exponent - 25).exp2()
}

/// Returns them rounded up; more than can be told is as much as can be.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).ceil() as u64
}

#[cfg(test)]
mod tests;
