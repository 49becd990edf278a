//! Databases of tests, each with a role that writes into it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Server, program, shared};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A database with a role that owns nothing but what it makes.
pub struct Database<'a> {
    pub server: &'a Server,
    pub name: String,
}

impl Database<'static> {
    /// Makes a database in the server that tests share, in which the role may write into these schemas.
    pub fn new(schemas: &[&str]) -> Self {
        Self::on(shared(), schemas)
    }
}

impl<'a> Database<'a> {
    /// As [`Database::new`], in another server.
    pub fn on(server: &'a Server, schemas: &[&str]) -> Self {
        let name = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let this = Self { server, name };
        for sql in
            [format!("CREATE DATABASE {}", this.name), format!("CREATE ROLE {} LOGIN", this.role())]
        {
            let made = server.psql("postgres", &sql);
            assert!(made.status.success(), "{made:?}");
        }
        for schema in schemas {
            this.sql(&format!("CREATE SCHEMA {schema} AUTHORIZATION {}", this.role()));
        }
        this
    }

    /// Name of the role that writes.
    pub fn role(&self) -> String {
        format!("{}_sink", self.name)
    }

    /// Runs statements as a superuser, and returns the answer.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        let output = self.server.psql(&self.name, sql);
        assert!(output.status.success(), "{sql}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// The address by a port, such as that of a pooler.
    pub fn at(&self, port: u16) -> String {
        format!("postgres://{}@127.0.0.1:{port}/{}?connect_timeout=10", self.role(), self.name)
    }

    /// The address by the socket.
    pub fn url(&self) -> String {
        let directory = self.server.directory.to_str().unwrap().replace('/', "%2F");
        let (role, port, name) = (self.role(), self.server.port, &self.name);
        format!("postgres://{role}@{directory}:{port}/{name}")
    }

    /// Holds statements open in a transaction of a superuser, until it is dropped.
    pub fn hold(&self, sql: &str) -> Held {
        let mut child = Command::new(program("psql"))
            .args(["-X", "-At", "-h"])
            .arg(&self.server.directory)
            .args(["-p", &self.server.port.to_string(), "-U", "root", "-d", &self.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{sql}\n;\n\\echo held").unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while lines.next().unwrap().unwrap() != "held" {}
        Held { child, stdin: Some(stdin) }
    }
}

/// Statements that are held open.
pub struct Held {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.child.wait().unwrap();
    }
}
