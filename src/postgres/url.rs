//! Addresses of PostgreSQL servers: `postgres://user@host:5432/database?sslmode=verify-full`. The parser is our
//! own, because the driver's knows no `verify-full`, and ours never shows a password: not in an error, not in
//! `Debug` and not in `Display`. Form: <https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS>.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

/// Port of a server whose address has none.
const PORT: u16 = 5432;
/// Seconds for making a connection where the address has none.
const CONNECT_SECONDS: u64 = 10;
/// Greatest number of seconds for making a connection.
const MOST_CONNECT_SECONDS: u64 = 600;
const ALLOWED: &str =
    "sslmode, sslrootcert, connect_timeout, application_name and target_session_attrs";

/// A password, which nothing prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Takes the text of a password: without the end of the line that files have.
    pub fn new(text: &str) -> Self {
        Self(
            text.strip_suffix('\n')
                .map_or(text, |it| it.strip_suffix('\r').unwrap_or(it))
                .to_owned(),
        )
    }

    /// The password itself, for the server alone.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(_)")
    }
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// At a port of a host: a name, or the text of an IP address.
    Tcp(String, u16),
    /// At a Unix socket in this directory, which is named after the port.
    Socket(PathBuf, u16),
}

impl Host {
    /// Whether whoever listens there is on this machine.
    fn is_local(&self) -> bool {
        match self {
            Self::Socket(..) => true,
            Self::Tcp(host, _) => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
            }
        }
    }
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Not at all: for this machine alone, or where somebody asked for it by `disable`.
    None,
    /// TLS with a certificate that names the host and comes from an authority that is trusted.
    Verified,
    /// TLS with any certificate (`no-verify`): whoever is between can read and write everything.
    Unverified,
}

/// Authorities whose certificates are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorities {
    /// Those of the system.
    System,
    /// Those in this file, in PEM.
    File(PathBuf),
}

/// The address of a server, with what a connection to it needs.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// Name of the role, if there is one: else the server is asked with the name `postgres`.
    pub(crate) user: String,
    /// Password in the address.
    pub(crate) password: Option<Password>,
    /// Where the server may be: tried in this order.
    pub(crate) hosts: Vec<Host>,
    /// Name of the database; that of the user without one.
    pub(crate) database: String,
    /// How the connection is protected; by host without `sslmode`.
    protection: Option<Protection>,
    /// Whom a certificate must come from.
    pub(crate) authorities: Authorities,
    /// Time for making a connection to one host, with TLS and password.
    pub(crate) connect_timeout: Duration,
    /// Name of the connection in the server's lists.
    pub(crate) application_name: String,
    /// Whether hosts that take no writes are passed over.
    pub(crate) skips_standbys: bool,
}

/// Why a text is no address of a server: a sentence without what the text contains, because there may be a
/// password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(String);

fn error(text: impl Into<String>) -> UrlError {
    UrlError(text.into())
}

impl ServerUrl {
    /// Reads an address from a place that others cannot read, such as a settings file of mode 0600: it may have a
    /// password.
    ///
    /// # Errors
    /// When it is no address of a PostgreSQL server, or asks for what is not offered.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let rest = ["postgres://", "postgresql://"].iter().find_map(|it| text.strip_prefix(it));
        let rest = rest.ok_or_else(|| {
            error("the address of the server must begin with postgres://: postgres://USER@HOST:PORT/DATABASE")
        })?;
        if rest.contains('#') {
            return Err(error("write %23 for # in the address of the server"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = login.map_or(Ok((None, None)), login_of)?;
        let user = user.unwrap_or_else(|| "postgres".to_owned());
        let database = match decoded(path, "database")? {
            name if name.is_empty() => user.clone(),
            name => name,
        };
        let hosts: Vec<Host> = hosts.split(',').map(host_of).collect::<Result<_, _>>()?;
        let mut url = Self {
            user,
            password,
            hosts,
            database,
            protection: None,
            authorities: Authorities::System,
            connect_timeout: Duration::from_secs(CONNECT_SECONDS),
            application_name: "orrery".to_owned(),
            skips_standbys: false,
        };
        for parameter in query.split('&').filter(|it| !it.is_empty()) {
            url.set(parameter)?;
        }
        Ok(url)
    }

    /// Reads an address that has no password, as in settings and arguments, which lists and logs may show.
    ///
    /// # Errors
    /// As [`ServerUrl::parse`], and when it has a password.
    pub fn without_password(text: &str) -> Result<Self, UrlError> {
        let url = Self::parse(text)?;
        match url.password {
            None => Ok(url),
            Some(_) => Err(error(
                "take the password out of the address, which lists and other users may see, and give it by \
                 `password_file` or by ORRERY_SINKS_NAME_PASSWORD",
            )),
        }
    }

    /// Takes the password for the server, instead of one in the address.
    #[must_use]
    pub fn with_password(self, password: Password) -> Self {
        Self { password: Some(password), ..self }
    }

    /// How a connection to this host is protected.
    pub(crate) fn protection(&self, host: &Host) -> Protection {
        match (self.protection, host) {
            // A Unix socket has no TLS.
            (_, Host::Socket(..)) => Protection::None,
            (Some(protection), _) => protection,
            (None, host) if host.is_local() => Protection::None,
            (None, _) => Protection::Verified,
        }
    }

    fn set(&mut self, parameter: &str) -> Result<(), UrlError> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = decoded(value, "value of a parameter")?;
        match name {
            "sslmode" => self.protection = Some(protection_of(&value)?),
            "sslrootcert" if value == "system" => self.authorities = Authorities::System,
            "sslrootcert" if value.is_empty() => {
                return Err(error("sslrootcert must be the path of a PEM file, or system"));
            }
            "sslrootcert" => self.authorities = Authorities::File(PathBuf::from(value)),
            "connect_timeout" => {
                let seconds =
                    value.parse().ok().filter(|it| (1..=MOST_CONNECT_SECONDS).contains(it));
                let seconds = seconds.ok_or_else(|| {
                    error(format!(
                        "connect_timeout must be seconds from 1 to {MOST_CONNECT_SECONDS}"
                    ))
                })?;
                self.connect_timeout = Duration::from_secs(seconds);
            }
            "application_name" => self.application_name = value,
            "target_session_attrs" => {
                self.skips_standbys = match &*value {
                    "any" => false,
                    "read-write" | "primary" => true,
                    _ => {
                        return Err(error(
                            "target_session_attrs must be any, read-write or primary: the sink writes",
                        ));
                    }
                }
            }
            "password" | "passfile" | "sslpassword" => {
                return Err(error(format!(
                    "no {name} among the parameters of the address: give the password by `password_file` or \
                     by ORRERY_SINKS_NAME_PASSWORD"
                )));
            }
            // A name can be part of a password that was not encoded.
            _ => {
                return Err(error(format!(
                    "the address of the server may have {ALLOWED} behind its ?"
                )));
            }
        }
        Ok(())
    }
}

/// Reads the part before the `@`.
fn login_of(login: &str) -> Result<(Option<String>, Option<Password>), UrlError> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let user = decoded(user, "user")?;
    let password = password.map(|it| decoded(it, "password")).transpose()?;
    let password = password.filter(|it| !it.is_empty()).map(Password);
    Ok(((!user.is_empty()).then_some(user), password))
}

fn host_of(text: &str) -> Result<Host, UrlError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) =
                rest.split_once(']').ok_or_else(|| error("a [ in the host has no ]"))?;
            host.parse::<std::net::Ipv6Addr>()
                .map_err(|_| error("between [ and ] must be an IPv6 address"))?;
            (host.to_owned(), port.strip_prefix(':').unwrap_or(port))
        }
        None => {
            let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
            (decoded(host, "host")?, port)
        }
    };
    let port = match port {
        "" => PORT,
        port => port
            .parse()
            .ok()
            .filter(|it| *it != 0)
            .ok_or_else(|| error("the port of the server must be a number from 1 to 65535"))?,
    };
    match host {
        host if host.is_empty() => Err(error(
            "the address of the server names no host: for a Unix socket, write its directory as \
             postgres://USER@%2Fvar%2Frun%2Fpostgresql/DATABASE",
        )),
        host if host.starts_with('/') => Ok(Host::Socket(PathBuf::from(host), port)),
        host => Ok(Host::Tcp(host, port)),
    }
}

fn protection_of(mode: &str) -> Result<Protection, UrlError> {
    match mode {
        "disable" => Ok(Protection::None),
        "require" | "verify-ca" | "verify-full" => Ok(Protection::Verified),
        "no-verify" => Ok(Protection::Unverified),
        "prefer" | "allow" => Err(error(
            "sslmode must not be prefer or allow, which whoever is between can turn off: write verify-full, \
             or disable",
        )),
        _ => Err(error("sslmode must be verify-full, require, no-verify or disable")),
    }
}

/// Decodes `%2F` and the like.
fn decoded(text: &str, what: &str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| error(format!("the {what} in the address is not UTF-8")))?;
    match decoded.contains('\0') {
        true => Err(error(format!("the {what} in the address has a character of number 0"))),
        false => Ok(decoded.into_owned()),
    }
}

/// Without the password and without parameters.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}@", self.user)?;
        for (number, host) in self.hosts.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match host {
                Host::Tcp(host, port) if host.contains(':') => write!(f, "{comma}[{host}]:{port}")?,
                Host::Tcp(host, port) => write!(f, "{comma}{host}:{port}")?,
                Host::Socket(path, port) => write!(f, "{comma}{}:{port}", path.display())?,
            }
        }
        write!(f, "/{}", self.database)
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ServerUrl {
        ServerUrl::parse(text).unwrap()
    }

    fn protection(text: &str) -> Protection {
        let url = parsed(text);
        url.protection(&url.hosts[0])
    }

    #[test]
    fn parts_of_an_address() {
        let url = parsed(
            "postgresql://me:p%40ss%2F@db.example:6543/my%20data?connect_timeout=3&application_name=a%26b&\
             target_session_attrs=read-write&sslrootcert=/etc/ca.pem",
        );
        assert_eq!((&*url.user, &*url.database, &*url.application_name), ("me", "my data", "a&b"));
        assert_eq!(url.hosts, [Host::Tcp("db.example".to_owned(), 6543)]);
        assert_eq!(url.password.as_ref().map(Password::reveal), Some("p@ss/"));
        assert_eq!(url.connect_timeout, Duration::from_secs(3));
        assert_eq!(url.authorities, Authorities::File("/etc/ca.pem".into()));
        assert!(url.skips_standbys);
        let several = parsed("postgres://u@a,[::1]:7,%2Frun%2Fpg:8/d");
        let socket = Host::Socket("/run/pg".into(), 8);
        assert_eq!(
            several.hosts,
            [Host::Tcp("a".into(), PORT), Host::Tcp("::1".into(), 7), socket]
        );
        assert_eq!(several.to_string(), "postgres://u@a:5432,[::1]:7,/run/pg:8/d");
        assert_eq!(parsed("postgres://u@h").database, "u");
    }

    #[test]
    fn connections_are_verified_unless_they_stay_on_the_machine_or_somebody_says_so() {
        for (text, expected) in [
            ("postgres://h/d", Protection::Verified),
            ("postgres://localhost.example/d", Protection::Verified),
            ("postgres://localhost/d", Protection::None),
            ("postgres://127.9.9.9/d", Protection::None),
            ("postgres://[::1]/d", Protection::None),
            ("postgres://%2Ftmp/d?sslmode=verify-full", Protection::None),
            ("postgres://localhost/d?sslmode=require", Protection::Verified),
            ("postgres://h/d?sslmode=require", Protection::Verified),
            ("postgres://h/d?sslmode=no-verify", Protection::Unverified),
            ("postgres://h/d?sslmode=disable", Protection::None),
        ] {
            assert_eq!(protection(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_told_without_the_text() {
        for text in [
            "http://u:hunter2@h/d",
            "u:hunter2@h/d",
            "postgres://u:hunter2@/d",
            "postgres://u:hunter2@h:0/d",
            "postgres://u:hunter2@h:hunter2/d",
            "postgres://u:hunter2@[::1/d",
            "postgres://u:%FFhunter2@h/d",
            "postgres://u:hunter2%00@h/d",
            "postgres://u:a#hunter2@h/d",
            "postgres://u:a?hunter2@h/d",
            "postgres://u:hunter2@h/d?sslmode=prefer",
            "postgres://u:hunter2@h/d?sslmode=allow",
            "postgres://u:hunter2@h/d?sslmode=hunter2",
            "postgres://u@h/d?password=hunter2",
            "postgres://u:hunter2@h/d?options=-c%20hunter2",
            "postgres://u:hunter2@h/d?connect_timeout=0",
            "postgres://u:hunter2@h/d?connect_timeout=hunter2",
            "postgres://u:hunter2@h/d?sslrootcert=",
            "postgres://u:hunter2@h/d?target_session_attrs=standby",
        ] {
            let error = ServerUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_in_no_argument_and_in_no_text() {
        let text = "postgres://u:hunter2@h/d";
        let refused = ServerUrl::without_password(text).unwrap_err().to_string();
        assert!(refused.contains("password_file") && !refused.contains("hunter2"), "{refused}");
        assert!(ServerUrl::without_password("postgres://u@h/d").is_ok());
        assert!(ServerUrl::without_password("postgres://u:@h/d").is_ok());
        let url = parsed(text).with_password(Password::new("hunter2\r\n"));
        assert_eq!(url.password.as_ref().map(Password::reveal), Some("hunter2"));
        let shown = format!("{url} {url:?} {:?}", url.password);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
