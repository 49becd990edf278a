//! Checks of the machine: disk space, resource limits, permissions of secrets, confinement of child
//! processes, and the systemd unit.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use orrery::account;
use orrery::config::Config;
use orrery::confinement;
use orrery::service::{self, DiskSpace};

use super::super::installed::LOCK_FILE;
use super::{Finding, State};

/// Number of file descriptors that the store and the rest of the process need, in addition to one
/// per connection.
const DESCRIPTORS: u64 = 768;
/// Limit of file descriptors below which the service cannot serve requests.
const FEWEST_DESCRIPTORS: u64 = 600;
/// Number of threads and processes of a service, including its child processes.
const PROCESSES: u64 = 256;
const FEWEST_PROCESSES: u64 = 64;

/// Returns the pid of the process that holds the lock of a data directory; `None` when no holder is
/// found. `/proc/locks` identifies the holder by its pid and the file by its device and inode
/// (proc_locks(5)).
pub(super) fn service_process(data_dir: &Path) -> Option<u32> {
    let inode = fs::metadata(data_dir.join(LOCK_FILE)).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let kind = words.next()?;
        let (process, file) = (words.nth(2)?, words.next()?);
        let same = kind == "FLOCK" && file.rsplit(':').next()?.parse() == Ok(inode);
        same.then(|| process.parse().ok()).flatten()
    })
}

pub(super) fn disk(config: &Config) -> Finding {
    // A data directory that does not exist yet will be on the disk of its nearest existing
    // ancestor.
    let there = config.data_dir.ancestors().find(|path| path.exists());
    let path = there.filter(|path| *path != Path::new("")).unwrap_or(Path::new("."));
    let room = match DiskSpace::of(path) {
        Ok(room) => room,
        Err(error) => {
            let text = format!("{}: {error}: check that the disk is mounted", path.display());
            return Finding::new("disk", State::Broken, text);
        }
    };
    let reserve = config.disk.reserve(room.total);
    let text = format!(
        "{} MiB of {} MiB are free, and {} MiB are reserved",
        room.free >> 20,
        room.total >> 20,
        reserve >> 20
    );
    let mend = "make room, use a larger disk, or keep fewer ledgers ([retention])";
    match room.free {
        free if free <= reserve => Finding::new(
            "disk",
            State::Broken,
            format!("{text}: no more ledgers are stored; {mend}"),
        ),
        free if free <= reserve.saturating_mul(2) => Finding::new(
            "disk",
            State::Look,
            format!("{text}: soon no more ledgers are stored; {mend}"),
        ),
        _ => Finding::new("disk", State::Ok, text),
    }
}

/// Checks the resource limits of the service's process, or those of this process, which a service
/// started from here would inherit.
pub(super) fn limits(process: Option<u32>, config: &Config) -> Vec<Finding> {
    let whose = process.map_or("self".to_owned(), |process| process.to_string());
    let text = match fs::read_to_string(format!("/proc/{whose}/limits")) {
        Ok(text) => text,
        Err(error) => {
            let text = format!("cannot be read ({error}): run this as the service's account");
            return vec![Finding::new("limits", State::Look, text)];
        }
    };
    let limit = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        let soft = rest.split_ascii_whitespace().next()?;
        if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
    };
    let connections = u64::from(config.http.connections.get());
    let files = (DESCRIPTORS.saturating_add(connections), FEWEST_DESCRIPTORS);
    [
        ("descriptors", "Max open files", files, "LimitNOFILE= in the unit, or `ulimit -n`"),
        (
            "processes",
            "Max processes",
            (PROCESSES, FEWEST_PROCESSES),
            "TasksMax= and LimitNPROC= in the unit, or `ulimit -u`",
        ),
    ]
    .into_iter()
    .map(|(what, name, (enough, fewest), setting)| match limit(name) {
        None => Finding::new(what, State::Look, "the limit is not known"),
        Some(u64::MAX) => Finding::new(what, State::Ok, "no limit"),
        Some(found) if found >= enough => {
            Finding::new(what, State::Ok, format!("{found} are allowed, {enough} may be needed"))
        }
        Some(found) => {
            let state = if found < fewest { State::Broken } else { State::Look };
            let text =
                format!("{found} are allowed, {enough} may be needed: raise it with {setting}");
            Finding::new(what, state, text)
        }
    })
    .collect()
}

/// Checks that only the owner can access the data directory and all of its secrets, and that all files
/// are the owner's.
pub(super) fn secrets(data_dir: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let secrets = service::secrets(data_dir);
    let mut count = 0;
    let mut look = |path: &Path, mode: &str| match fs::metadata(path) {
        Ok(found) => {
            count += 1;
            let found = found.permissions().mode() & 0o777;
            (found & 0o077 != 0).then(|| {
                let path = path.display();
                let text = format!(
                    "{path} has mode {found:04o}, so other users can access it: `chmod {mode} {path}`"
                );
                Finding::new("secrets", State::Broken, text)
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(unreadable(path, &error)),
    };
    findings.extend(look(data_dir, "0700"));
    findings.extend(look(&secrets, "0700"));
    match fs::read_dir(&secrets) {
        Ok(entries) => {
            for entry in entries.flatten() {
                findings.extend(look(&entry.path(), "0600"));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            let finding = unreadable(&secrets, &error);
            // Said above where the directory cannot even be looked at.
            if findings.iter().all(|other| other.sentence != finding.sentence) {
                findings.push(finding);
            }
        }
    }
    // The service would find out at its next start.
    findings.extend(
        account::foreign_file(data_dir)
            .map(|file| Finding::new("secrets", State::Broken, file.to_string())),
    );
    if findings.is_empty() {
        let text = match count {
            0 => "there are none yet".to_owned(),
            _ => "only their owner can access the data directory and its secrets".to_owned(),
        };
        findings.push(Finding::new("secrets", State::Ok, text));
    }
    findings
}

fn unreadable(path: &Path, error: &std::io::Error) -> Finding {
    let text = format!("{}: {error}: run this as the service's account", path.display());
    Finding::new("secrets", State::Broken, text)
}

/// Checks whether the kernel can confine the SQL worker and the compiler process.
pub(super) fn confinement() -> Finding {
    match confinement::available() {
        Ok(found) => match found.missing() {
            None => Finding::new(
                "confinement",
                State::Ok,
                "Landlock and seccomp confine child processes",
            ),
            Some(lack) => {
                let text = format!("{lack}: use Linux 5.13 or later with Landlock and seccomp");
                Finding::new("confinement", State::Look, text)
            }
        },
        Err(error) => {
            let text = format!(
                "{error}: allow Landlock and seccomp here, for example in the container's settings"
            );
            Finding::new("confinement", State::Broken, text)
        }
    }
}

/// Returns the name of the systemd unit of a service; `None` when systemd does not run it.
pub(super) fn unit_name(process: u32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    groups.lines().find_map(|line| {
        let name = line.rsplit('/').next()?;
        name.ends_with(".service").then(|| name.to_owned())
    })
}

/// Checks whether the systemd unit of a service drops the privileges that the service does not
/// need.
pub(super) fn unit(process: u32, unit: &str) -> Option<Finding> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let value = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let mut lacks = Vec::new();
    if value("NoNewPrivs:").as_deref() != Some("1") {
        lacks.push("NoNewPrivileges=yes");
    }
    if value("Seccomp:").as_deref() == Some("0") {
        lacks.push("SystemCallFilter=");
    }
    if value("CapEff:").is_some_and(|held| held.chars().any(|digit| digit != '0')) {
        lacks.push("CapabilityBoundingSet=");
    }
    Some(if lacks.is_empty() {
        Finding::new("unit", State::Ok, format!("{unit} is hardened"))
    } else {
        let text = format!("{unit} is not hardened: set {} in it", lacks.join(", "));
        Finding::new("unit", State::Look, text)
    })
}
