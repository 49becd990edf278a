//! Connecting to a server: its hosts in turn, each within a time, with TLS and password, and what the server must
//! be. Pauses between attempts.

use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, NoTls};

use super::connection::Connection;
use super::error::{Result, SinkError, cause};
use super::server;
use super::tls::Tls;
use super::url::{Host, Password, Protection, ServerUrl};

/// Time without an answer after which the system asks whether the server is still there, the time between two such
/// questions, and their number.
const QUIET: Duration = Duration::from_secs(30);
const BETWEEN_PROBES: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// Pauses between attempts: 1 s, twice as long after each failure, at most 60 s.
#[derive(Debug, Clone)]
pub struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);

    /// Returns the pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Self::LONGEST);
        pause
    }

    /// Begins with the shortest pause again, because an attempt succeeded.
    pub fn reset(&mut self) {
        self.0 = Self::FIRST;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

impl ServerUrl {
    /// Connects to the first host that takes the connection, and checks that the server can be written to: at
    /// least PostgreSQL 14, UTF-8, no standby.
    ///
    /// # Errors
    /// [`SinkError::Lost`] when no host answers; [`SinkError::Refused`] when one refuses the user, or is not what
    /// is needed.
    pub async fn connect(&self) -> Result<Connection> {
        let mut failed: Option<SinkError> = None;
        for host in &self.hosts {
            let connected = match timeout(self.connect_timeout, self.connect_to(host)).await {
                Ok(connected) => connected,
                Err(_) => {
                    let seconds = self.connect_timeout.as_secs();
                    Err(SinkError::Lost(format!(
                        "{self} did not take the connection within {seconds} s"
                    )))
                }
            };
            let checked = match connected {
                Ok(connection) => server::check(&connection).await.map(|()| connection),
                Err(error) => Err(error),
            };
            match checked {
                Ok(connection) => return Ok(connection),
                // What is refused says more than that another host is down.
                Err(error) if matches!(failed, Some(SinkError::Refused(_))) => drop(error),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| SinkError::Refused(format!("{self} names no host"))))
    }

    async fn connect_to(&self, host: &Host) -> Result<Connection> {
        let mut config = Config::new();
        config.user(&self.user).dbname(&self.database).application_name(&self.application_name);
        if let Some(password) = self.password.as_ref().map(Password::reveal) {
            config.password(password);
        }
        match (host, self.protection(host)) {
            (Host::Socket(directory, port), _) => {
                let path = directory.join(format!(".s.PGSQL.{port}"));
                let stream = UnixStream::connect(&path).await;
                let stream = stream.map_err(|error| {
                    SinkError::Lost(format!(
                        "no connection to the socket {}: {error}",
                        path.display()
                    ))
                })?;
                config.ssl_mode(SslMode::Disable);
                let connected = config.connect_raw(stream, NoTls).await;
                connected.map(Connection::new).map_err(|error| self.refused(&error))
            }
            (Host::Tcp(name, port), Protection::None) => {
                let stream = self.dial(name, *port).await?;
                config.ssl_mode(SslMode::Disable);
                let connected = config.connect_raw(stream, NoTls).await;
                connected.map(Connection::new).map_err(|error| self.refused(&error))
            }
            (Host::Tcp(name, port), protection) => {
                let tls = Tls::new(name, protection, &self.authorities)?;
                let stream = self.dial(name, *port).await?;
                config.ssl_mode(SslMode::Require);
                let connected = config.connect_raw(stream, tls).await;
                connected.map(Connection::new).map_err(|error| self.refused(&error))
            }
        }
    }

    async fn dial(&self, host: &str, port: u16) -> Result<TcpStream> {
        let lost = |error: std::io::Error| {
            SinkError::Lost(format!(
                "no connection to {self}: {error}: start it, or correct its address"
            ))
        };
        let stream = TcpStream::connect((host, port)).await.map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        keep_alive(&stream).map_err(lost)?;
        Ok(stream)
    }

    /// Describes why the server, or TLS to it, refused the connection.
    fn refused(&self, error: &tokio_postgres::Error) -> SinkError {
        let Some(answer) = error.as_db_error() else {
            let cause = cause(error);
            return match &*cause {
                "server does not support TLS" => SinkError::Refused(format!(
                    "{self} offers no TLS: turn it on there (ssl = on), or write sslmode=disable if nobody can \
                     be between"
                )),
                "password missing" => SinkError::Refused(format!(
                    "{self} wants a password: give it by password_file or ORRERY_SINKS_NAME_PASSWORD"
                )),
                cause if cause.contains("certificate") => SinkError::Refused(format!(
                    "{self} is not trusted: {cause}: name its authority by sslrootcert"
                )),
                cause => SinkError::Lost(format!("no connection to {self}: {cause}")),
            };
        };
        let (code, said) = (answer.code().code(), answer.message());
        let mend = match code {
            "28P01" | "28000" => "check the user, the password and the server's pg_hba.conf",
            "3D000" => "create the database, or name another one",
            _ => return SinkError::of(&format!("connecting to {self}"), error),
        };
        SinkError::Refused(format!("{self} refuses the connection: {said}: {mend}"))
    }
}

/// Has the system find out that the server's machine is gone.
fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, QUIET)?;
    sockopt::set_tcp_keepintvl(stream, BETWEEN_PROBES)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_a_second_to_a_minute() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..8).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_secs(1));
    }
}
