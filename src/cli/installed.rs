//! Finds the services of this machine, so that a command needs no address and no data directory: by
//! their settings, and by the lock files that running ones hold open.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery::config::{ConfigError, Layers, Settings};

use super::Failure;

/// Directory with the settings of the services of the Debian package, one file for each.
pub const SETTINGS: &str = "/etc/orrery";
/// Where a machine keeps what [`data_dir`] looks at.
pub struct Places<'a> {
    /// Processes, as in proc_pid_fd(5).
    pub processes: &'a Path,
    /// Settings of the services of the Debian package, one file for each.
    pub settings: &'a Path,
    /// Data directories of these services, each with the name of its settings.
    pub data: &'a Path,
}

/// Returns the places of this machine.
pub fn machine() -> Places<'static> {
    Places {
        processes: Path::new("/proc"),
        settings: Path::new(SETTINGS),
        data: Path::new("/var/lib/orrery"),
    }
}

/// Name of the file in a data directory that the process which uses it keeps open.
pub const LOCK_FILE: &str = "orrery.lock";
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

/// Returns the data directory of the only service: of those that run, one below `here` comes first; if
/// none is known to run, the only installed one that has stored something. `None` when there is none.
///
/// # Errors
/// There are several, so that one has to be chosen.
pub fn data_dir(places: &Places<'_>, here: &Path) -> Result<Option<PathBuf>, Failure> {
    let running = running_data_dirs(places.processes);
    let (near, far): (Vec<_>, Vec<_>) = running.into_iter().partition(|it| it.starts_with(here));
    let mut found = if near.is_empty() { far } else { near };
    if found.is_empty() {
        let installed = services(places.settings).into_iter().map(|it| places.data.join(it.name));
        found.extend(installed.filter(|path| path.is_dir()));
    }
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => {
            let several: Vec<_> = several.iter().map(|it| it.display().to_string()).collect();
            Err(Failure::usage(format!(
                "there are several services on this machine: give --data-dir, or set ORRERY_DATA_DIR, for one \
                 of {}",
                several.join(", ")
            )))
        }
    }
}

/// Returns the data directories whose lock file a process holds open, as far as this user may see that.
fn running_data_dirs(processes: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let is_process = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let processes = entries(processes).filter(|entry| is_process(&entry.file_name()));
    let descriptors = processes.flat_map(|process| entries(&process.path().join("fd")));
    let files = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    let locks = files.filter(|file| file.ends_with(LOCK_FILE));
    let directories = locks.filter_map(|it| Some(it.parent()?.to_owned()));
    // The directory of a stellar-core that a service runs has such a file, too.
    let directories: BTreeSet<_> = directories.filter(|it| it.join("raw").is_dir()).collect();
    directories.into_iter().collect()
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
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_data_directory_of_the_only_service_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let (processes, settings, data) = (at.join("proc"), at.join("etc"), at.join("data"));
        for path in [&processes, &settings, &data] {
            fs::create_dir(path).unwrap();
        }
        let places = Places { processes: &processes, settings: &settings, data: &data };
        let found = |here: &str| data_dir(&places, &at.join(here)).map_err(|it| it.to_string());
        assert_eq!(found("home"), Ok(None));
        // Both services of a package have settings, and one of them has stored something.
        for name in ["mainnet", "testnet"] {
            fs::write(settings.join(format!("{name}.toml")), "").unwrap();
        }
        assert_eq!(found("home"), Ok(None));
        fs::create_dir(data.join("testnet")).unwrap();
        assert_eq!(found("home"), Ok(Some(data.join("testnet"))));

        let runs = |process: &str, data_dir: &str| {
            let (files, data_dir) = (processes.join(process).join("fd"), at.join(data_dir));
            fs::create_dir_all(&files).unwrap();
            fs::create_dir_all(data_dir.join("raw")).unwrap();
            symlink("/dev/null", files.join("0")).unwrap();
            symlink(data_dir.join(LOCK_FILE), files.join("7")).unwrap();
            data_dir
        };
        let demo = runs("12", "home/my-network");
        assert_eq!(found("elsewhere"), Ok(Some(demo.clone())), "what runs comes first");
        // A directory that is none of ours, and what is no process.
        fs::remove_dir(runs("13", "core").join("raw")).unwrap();
        runs("self", "also");
        assert_eq!(found("elsewhere"), Ok(Some(demo.clone())));

        let other = runs("14", "other");
        assert_eq!(found("home"), Ok(Some(demo.clone())), "the one below this directory");
        let refused = found("elsewhere").unwrap_err();
        assert!(refused.contains("--data-dir"), "{refused}");
        for path in [demo, other] {
            assert!(refused.contains(path.to_str().unwrap()), "{refused}");
        }
    }

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
