//! A pooler before a server: Debian's package `pgbouncer`.

use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::super::wait::wait_within;
use super::{Database, command, free_port, give};

/// pgbouncer, which is ended when this is dropped.
pub struct Pooler {
    child: Child,
    /// Port of 127.0.0.1 on which it listens.
    pub port: u16,
    _scratch: tempfile::TempDir,
}

impl Pooler {
    /// Starts pgbouncer for the role of a database. It lends one connection to all, for a transaction at a time.
    pub fn start(database: &Database<'_>) -> Self {
        let port = free_port();
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path();
        let (users, configuration) = (at.join("users"), at.join("pgbouncer.ini"));
        std::fs::write(&users, format!("\"{}\" \"\"\n", database.role())).unwrap();
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = 1\nunix_socket_dir =\n\
             logfile = {}/log\n",
            database.server.port,
            users.display(),
            at.display()
        );
        std::fs::write(&configuration, text).unwrap();
        give(at);
        let mut program = command("pgbouncer");
        program.arg(&configuration).stdout(Stdio::null()).stderr(Stdio::null());
        let pooler = Self { child: program.spawn().unwrap(), port, _scratch: scratch };
        wait_within(Duration::from_secs(20), "pgbouncer listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        pooler
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
