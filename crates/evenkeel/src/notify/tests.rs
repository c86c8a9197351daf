//! Tests the messages to a service manager, on sockets of the tests' own.

use super::*;

/// A service manager's socket that the tests read, and the sender to it.
struct Ear {
    socket: UnixDatagram,
    manager: Manager,
}

impl Ear {
    fn abstract_one(name: &str, watchdog: Option<Duration>) -> Ear {
        let name = format!("evenkeel-notify-{}-{name}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Ear::of(socket, &format!("@{name}"), watchdog)
    }

    fn of(socket: UnixDatagram, address: &str, watchdog: Option<Duration>) -> Ear {
        socket.set_nonblocking(true).unwrap();
        let manager = Manager::at(OsStr::new(address), watchdog).unwrap();
        Ear { socket, manager }
    }

    /// Returns the messages since the last call. A datagram is available once it is sent.
    fn received(&self) -> Vec<String> {
        let mut bytes = [0; 512];
        std::iter::from_fn(|| {
            self.socket
                .recv(&mut bytes)
                .ok()
                .map(|count| text(&bytes[..count]))
        })
        .collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_manager_with_a_path_hears_us() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let ear = Ear::of(socket, path.to_str().unwrap(), None);
    ear.manager.send("READY=1");
    assert_eq!(ear.received(), ["READY=1"]);
}

#[test]
fn a_manager_with_an_abstract_name_hears_us() {
    let ear = Ear::abstract_one("hears", None);
    ear.manager.send("READY=1");
    assert_eq!(ear.received(), ["READY=1"]);
}

#[test]
fn a_status_is_told_once_and_in_one_line() {
    let ear = Ear::abstract_one("status", None);
    let now = Instant::now();
    for status in ["1 service", "1 service", "2\nservices"] {
        ear.manager.ping(status, now);
    }
    assert_eq!(ear.received(), ["STATUS=1 service", "STATUS=2 services"]);
}

#[test]
fn the_watchdog_is_fed_four_times_in_its_interval() {
    let ear = Ear::abstract_one("watchdog", Some(Duration::from_secs(20)));
    let start = Instant::now();
    let second = |number: u64| start + Duration::from_secs(number);
    (0..20).for_each(|number| ear.manager.ping("", second(number)));
    assert_eq!(ear.received(), ["WATCHDOG=1"; 4]);
}

#[test]
fn without_a_watchdog_nobody_is_told_that_we_are_alive() {
    for interval in [None, Some(Duration::ZERO)] {
        let ear = Ear::abstract_one(&format!("none-{}", interval.is_some()), interval);
        ear.manager.ping("", Instant::now());
        assert!(ear.received().is_empty());
    }
}

#[test]
fn a_process_that_was_replaced_says_nothing_more() {
    let ear = Ear::abstract_one("retired", Some(Duration::from_secs(1)));
    ear.manager.sent().is_retired = true;
    ear.manager.send("STOPPING=1");
    ear.manager.ping("going", Instant::now());
    assert!(ear.received().is_empty());
}

#[test]
fn a_manager_that_is_gone_is_no_error() {
    let ear = Ear::abstract_one("gone", None);
    drop(ear.socket);
    ear.manager.send("READY=1");
}

#[test]
fn an_address_that_is_none_is_refused() {
    assert!(Manager::at(OsStr::new(&format!("@{}", "x".repeat(200))), None).is_err());
    assert!(Manager::at(OsStr::new(&format!("/{}", "x".repeat(200))), None).is_err());
}
