//! Finds the services of this machine by their settings, so that a command needs no address.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use orrery::config::{ConfigError, Layers, Settings};

use super::Failure;

/// Directory with the settings of the services of the Debian package, one file for each.
pub const SETTINGS: &str = "/etc/orrery";
/// Time in which a service on this machine accepts a connection.
const CONNECT: Duration = Duration::from_millis(500);

/// A service that has settings on this machine.
#[derive(Debug, PartialEq, Eq)]
struct Installed {
    /// Name of its file of settings, without the ending.
    name: String,
    /// Address on which it listens; `None` if this user may not read the settings.
    listen: Option<SocketAddr>,
}

/// Returns the address of the only service with settings in the directory that runs; `None` when
/// none is known to run.
///
/// # Errors
/// Several run, so that one has to be chosen; or this user may not read where one listens.
pub fn running(directory: &Path) -> Result<Option<SocketAddr>, Failure> {
    let installed = services(directory);
    let runs = |address: &SocketAddr| TcpStream::connect_timeout(address, CONNECT).is_ok();
    let running: Vec<(&str, SocketAddr)> = installed
        .iter()
        .filter_map(|it| Some((it.name.as_str(), it.listen.filter(runs)?)))
        .collect();
    match running.as_slice() {
        [] => {}
        [(_, address)] => return Ok(Some(*address)),
        several => {
            let several: Vec<String> =
                several.iter().map(|(name, at)| format!("{name} at http://{at}/rest")).collect();
            return Err(Failure::usage(format!(
                "several services run on this machine: give --base, or set ORRERY_BASE, for one of {}",
                several.join(", ")
            )));
        }
    }
    Ok(None)
}

/// Returns what to say when no service answers at the default address although some are installed.
pub fn hint(directory: &Path) -> Option<String> {
    let hidden: Vec<String> = services(directory)
        .into_iter()
        .filter(|it| it.listen.is_none())
        .map(|it| format!("{}.toml", it.name))
        .collect();
    (!hidden.is_empty()).then(|| {
        format!(
            "only root may read where the services in {} listen ({}): a new installation has testnet at \
             http://127.0.0.1:8485/rest and mainnet at http://127.0.0.1:8484/rest",
            directory.display(),
            hidden.join(", ")
        )
    })
}

/// Returns the address on which a service with these settings is reached from this machine.
///
/// # Errors
/// The settings cannot be read, or are not valid.
pub fn listen_of(settings: &Path) -> Result<SocketAddr, ConfigError> {
    let layers =
        Layers { file: Some(settings.to_owned()), environment: Vec::new(), flags: Vec::new() };
    Ok(on_this_machine(Settings::load(layers)?.config.http.listen))
}

/// A service that listens on all addresses is reached at the loopback address.
pub fn on_this_machine(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn services(directory: &Path) -> Vec<Installed> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    let installed = files.iter().filter_map(|path| {
        let name = path.file_stem()?.to_str()?.to_owned();
        Some(Installed { name, listen: listen_of(path).ok() })
    });
    installed.collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_only_service_that_runs_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        assert!(running(at).unwrap().is_none() && running(&at.join("none")).unwrap().is_none());
        let settings = |name: &str, listen: &str| {
            let text = format!("network = \"{name}\"\n[http]\nlisten = \"{listen}\"\n");
            fs::write(at.join(format!("{name}.toml")), text).unwrap();
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        settings("mainnet", &free.to_string());
        assert!(running(at).unwrap().is_none(), "it does not run");
        settings("testnet", &format!("0.0.0.0:{}", address.port()));
        assert_eq!(running(at).unwrap(), Some(address));
        assert_eq!(hint(at), None);

        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        settings("mainnet", &other.local_addr().unwrap().to_string());
        let refused = running(at).unwrap_err().to_string();
        assert!(refused.contains("mainnet at http://127.0.0.1:"), "{refused}");
        assert!(refused.contains("testnet at http://") && refused.contains("--base"), "{refused}");

        // What cannot be read here is as for a user who may not read it.
        fs::write(at.join("testnet.toml"), "not settings").unwrap();
        fs::write(at.join("mainnet.toml.dpkg-old"), "").unwrap();
        assert!(hint(at).unwrap().contains("(testnet.toml)"));
    }
}
