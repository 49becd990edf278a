//! A log that cannot be written ends nothing.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use orrery_testkit::binary::orrery_in;
use orrery_testkit::signal::{Signal, send};
use orrery_testkit::wait::wait_until;

/// Starts a service that writes its log to `log`.
fn serve(at: &Path, log: Stdio) -> Child {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--network", "local", "--no-source"];
    let mut command = orrery_in(at);
    command.args(arguments).args(["--data-dir", "d", "--log-level", "debug"]);
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// Asserts that a service is running, and that it stops as it should.
fn stops(at: &Path, mut service: Child) {
    wait_until("the service listens", || at.join("d/control.sock").exists());
    assert_eq!(service.try_wait().unwrap(), None);
    send(service.id(), Signal::TERM);
    assert_eq!(service.wait().unwrap().code(), Some(0));
}

#[test]
fn a_service_goes_on_when_nobody_reads_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut service = serve(directory.path(), Stdio::piped());
    let mut line = String::new();
    BufReader::new(service.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty());
    stops(directory.path(), service);
}

#[test]
fn a_service_goes_on_when_the_disk_of_its_log_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    stops(directory.path(), serve(directory.path(), full.into()));
}
