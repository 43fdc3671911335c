//! Whom `corelocal clockd` believes: a chronyd, played and real, and a hypervisor's page, played by a file.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::clock::{Daemon, folder, read};
use crate::{LIMIT, corelocal, skip};

const ENCODING: [&str; 2] = ["--encoding", "clockbound"];

/// A chronyd that says that the clock is right to within a millisecond, while it is not told to be silent.
struct Played {
    address: String,
    is_silent: Arc<AtomicBool>,
}

impl Played {
    fn start() -> Played {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        let is_silent = Arc::new(AtomicBool::new(false));
        let silent = is_silent.clone();
        thread::spawn(move || {
            let mut request = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut request) {
                if len == 104 && !silent.load(Ordering::Relaxed) {
                    let _ = socket.send_to(&tracking(&request), from);
                }
            }
        });
        Played { address, is_silent }
    }

    fn be_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }
}

/// The report: see the command's clockd/chrony.rs.
fn tracking(request: &[u8]) -> [u8; 104] {
    let mut reply = [0; 104];
    reply[..8].copy_from_slice(&[6, 2, 0, 0, 0, 33, 0, 5]);
    reply[16..20].copy_from_slice(&request[8..12]);
    reply[28] = 10; // some reference
    reply[53] = 2; // stratum
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    reply[56..64].copy_from_slice(&now.as_secs().to_be_bytes());
    // The root's dispersion: 2^-10 s, as 2^23 * 2^(-8 - 25).
    let dispersion = ((-8_i32 as u32) << 25) | 1 << 23;
    reply[96..100].copy_from_slice(&dispersion.to_be_bytes());
    reply
}

/// Until what the page says is so.
fn wait_for(page: &Path, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let (_, said) = read(page);
        if is_so(&said) {
            return said;
        }
        assert!(began.elapsed() < LIMIT, "{what}: {said}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn chrony_is_believed_where_it_answers() {
    let chronyd = Played::start();
    let (_folder, page) = folder();
    let args = [&ENCODING[..], &["--source", "chrony", "--chrony", &chronyd.address]].concat();
    let daemon = Daemon::start(&page, &args).expect("it answers");
    let whose = format!("by chronyd at {}", chronyd.address);
    assert!(
        daemon.says.contains("accurate to within") && daemon.says.contains(&whose),
        "{}",
        daemon.says
    );
    let (code, said) = read(&page);
    assert_eq!((code, &said["status"]), (Some(0), &Value::from("synchronized")), "{said}");
    let error = said["max_error_ns"].as_u64().expect("an error");
    assert!(error >= 976_562, "{said}");
    // chronyd falls silent: the clock is no longer corrected.
    chronyd.be_silent();
    let said = wait_for(&page, "silence", |said| said["status"] == "free-running");
    assert!(said["max_error_ns"].as_u64() >= Some(error), "{said}");
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.end().1, Some(0));
}

#[test]
fn the_kernel_is_asked_where_chrony_is_silent() {
    let (_folder, page) = folder();
    let nowhere = ["--chrony", "/no/such/chronyd.sock"];
    let alone = [&ENCODING[..], &nowhere, &["--source", "chrony"]].concat();
    let why = Daemon::start(&page, &alone).err().expect("nobody to ask");
    assert!(why.contains("chronyd does not answer") && why.contains("--chrony"), "{why}");
    let chronyd = Played::start();
    let auto = [&ENCODING[..], &["--chrony", &chronyd.address]].concat();
    let mut daemon = match Daemon::start(&page, &auto) {
        Ok(daemon) => daemon,
        Err(why) => return skip("the_kernel_is_asked_where_chrony_is_silent", &why),
    };
    assert!(daemon.says.contains("by chronyd"), "{}", daemon.says);
    chronyd.be_silent();
    // The page may change without that: chronyd's last answer has another error, too.
    daemon.waits_to_say("kernel");
    daemon.signal(libc::SIGTERM);
    let (rest, code) = daemon.end();
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn a_hypervisors_disruptions_are_carried_on() {
    let (folder, page) = folder();
    let device = folder.path().join("vmclock0");
    let device_path = device.to_str().expect("text");
    let mut image = vec![0_u8; 4096];
    image[..4].copy_from_slice(b"VCLK");
    image[4..8].copy_from_slice(&4096_u32.to_le_bytes());
    image[8..12].copy_from_slice(&[1, 0, 0xff, 0]);
    fs::write(&device, &image).expect("a file");
    // Places of the sequence number and of the marker: see the library's clock/page/vmclock.rs.
    let publish = |marker: u64, sequence: u32| {
        let file = fs::File::options().write(true).open(&device).expect("a page");
        let put = |bytes: &[u8], at| file.write_all_at(bytes, at).expect("a page");
        put(&(sequence - 1).to_le_bytes(), 12);
        put(&marker.to_le_bytes(), 16);
        put(&sequence.to_le_bytes(), 12);
    };
    for (encoding, first, then) in [("clockbound", 41, 43), ("vmclock", 0, 2)] {
        publish(41, 2);
        let _ = fs::remove_file(&page);
        let args = ["--encoding", encoding, "--max-error", "5ms", "--vmclock", device_path];
        let daemon = match Daemon::start(&page, &args) {
            Ok(daemon) => daemon,
            Err(why) => {
                assert!(why.contains("cannot publish as"), "{why}");
                skip("a_hypervisors_disruptions_are_carried_on", &why);
                continue;
            }
        };
        assert!(daemon.says.contains("disruptions are copied from"), "{}", daemon.says);
        assert_eq!(read(&page).1["disruptions"], first);
        publish(43, 4);
        wait_for(&page, "the marker rises", |said| said["disruptions"] == then);
        daemon.signal(libc::SIGKILL);
        daemon.end();
        // The device was not watched meanwhile.
        let daemon = Daemon::start(&page, &args).expect("it could before");
        let again = read(&page).1["disruptions"].as_u64();
        assert_eq!(again, Some(if encoding == "vmclock" { then + 1 } else { then }));
        drop(daemon);
    }
    fs::write(&device, "no page").expect("a file");
    let done =
        corelocal(&["clockd", "--vmclock", device_path, "--max-error", "5ms", "--file", "p"]);
    assert!(done.code == Some(1) && done.err.contains("vmclock0"), "{}", done.whole());
}

/// A real one, which does not touch this machine's clock.
struct Chronyd(Child);

impl Chronyd {
    fn start(program: &Path, folder: &Path, name: &str, config: &str) -> Chronyd {
        let path = folder.join(name);
        let config =
            format!("{config}\npidfile {}\n", folder.join(format!("{name}.pid")).display());
        fs::write(&path, config).expect("a file");
        let mut command = Command::new(program);
        command.args(["-x", "-d", "-u", "root", "-f"]).arg(path);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Chronyd(quiet.spawn().expect("the program starts"))
    }
}

impl Drop for Chronyd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two ports that are free now.
fn ports() -> [u16; 2] {
    let sockets = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port"));
    sockets.map(|socket| socket.local_addr().expect("an address").port())
}

/// `chronyd` is looked for where packages put it, and where `CORELOCAL_CHRONYD` says.
#[test]
fn a_real_chrony_is_understood() {
    const TEST: &str = "a_real_chrony_is_understood";
    let named = std::env::var_os("CORELOCAL_CHRONYD").map(PathBuf::from);
    let usual = ["/usr/sbin/chronyd", "/usr/bin/chronyd"].map(PathBuf::from);
    let Some(program) = named.into_iter().chain(usual).find(|path| path.exists()) else {
        return skip(TEST, "no chronyd is installed");
    };
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return skip(TEST, "chronyd is for root");
    }
    let (folder, page) = folder();
    let at = folder.path();
    // It makes no socket where others look.
    fs::set_permissions(at, fs::Permissions::from_mode(0o700)).expect("a folder of ours");
    let [server, commands] = ports();
    let _server = Chronyd::start(
        &program,
        at,
        "server",
        &format!(
            "local stratum 3\nport {server}\nallow 127.0.0.1\nbindaddress 127.0.0.1\ncmdport 0\n\
         bindcmdaddress /"
        ),
    );
    let socket = at.join("c.sock");
    let client = Chronyd::start(
        &program,
        at,
        "client",
        &format!(
            "server 127.0.0.1 port {server} minpoll -4 maxpoll -4 iburst\nport 0\ncmdport {commands}\n\
         bindcmdaddress {}",
            socket.display()
        ),
    );
    let udp = format!("127.0.0.1:{commands}");
    let began = Instant::now();
    for place in [udp.as_str(), socket.to_str().expect("text")] {
        let args = [&ENCODING[..], &["--source", "chrony", "--chrony", place]].concat();
        loop {
            match Daemon::start(&page, &args) {
                Ok(daemon) if daemon.says.contains("accurate to within") => {
                    assert!(daemon.says.contains(place), "{}", daemon.says);
                    let (code, said) = read(&page);
                    assert_eq!(
                        (code, &said["status"]),
                        (Some(0), &"synchronized".into()),
                        "{said}"
                    );
                    // It follows its neighbour on the same machine; its first measurements may have waited
                    // for a cpu.
                    let error = said["max_error_ns"].as_u64().expect("an error");
                    assert!(error > 0, "{said}");
                    if error < 100_000_000 {
                        break;
                    }
                }
                // It does not answer yet, or has not measured yet.
                Ok(_) | Err(_) => {}
            }
            if began.elapsed() > LIMIT / 4 {
                return skip(TEST, "chronyd does not get there on this machine");
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
    // A chronyd without a source is not believed, whatever error it reports.
    drop(client);
    let args = [&ENCODING[..], &["--source", "chrony", "--chrony", udp.as_str()]].concat();
    assert!(Daemon::start(&page, &args).err().is_some_and(|why| why.contains("chronyd")));
}
