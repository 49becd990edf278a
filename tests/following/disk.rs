//! A full disk: ingestion reports it, stored data is still served, and ingestion resumes by itself
//! once there is space.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use orrery_testkit::binary::{Service, configure};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::wait::wait_until;

/// A small tmpfs mount, unmounted on drop.
struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts the file system. Prints a message and returns `None` where mounting is not permitted.
    fn new(megabytes: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "none"])
            .arg(directory.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self { directory });
        }
        println!("skipped: no file system can be mounted here");
        None
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Changes its size.
    fn grow(&self, megabytes: u32) {
        let size = format!("remount,size={megabytes}m");
        let grown = Command::new("mount").args(["-o", &size]).arg(self.path()).status();
        assert!(grown.unwrap().success());
    }

    /// Fills all remaining space.
    fn fill(&self) {
        let path = self.path().join("filler");
        let mut file = fs::File::create(&path).unwrap();
        let zeros = vec![0; 64 << 10];
        while file.write_all(&zeros).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_ingestion_resumes() {
    // Too small for the space that RocksDB preallocates for its WAL where it can, and which could
    // still be written to after the disk is full.
    let Some(disk) = SmallDisk::new(12) else { return };
    configure(disk.path(), "[disk]\nreserve_mib = 0\n");
    let chain = Chain::made(1, 200);
    let lake = LakeFiles::with(&chain, 2..=100);
    let service =
        Service::local(disk.path(), &["--source", &lake.text(), "--config", "orrery.toml"]);
    service.wait_until_stored(100);
    let before = service.rows_without_ids("/rest/events/by-ledger?limit=1000", "id");
    disk.fill();
    let mut sequence = 100;
    let health = wait_until("the full disk is reported", || {
        if sequence < 180 {
            sequence += 1;
            lake.add(&chain, sequence);
        }
        let health = service.health();
        (health["components"]["ingestion"]["status"] == "down").then_some(health)
    });
    let reason = health["components"]["ingestion"]["reason"].to_string();
    assert!(reason.contains("No space left on device"), "{reason}");
    assert_eq!(health["service"], "down");
    let stored = health["service_latest_ledger"].as_u64().unwrap();
    let rows = service.rows_without_ids("/rest/events/by-ledger?limit=1000&to=100", "id");
    assert_eq!(rows, before, "stored events are still served");
    disk.grow(200);
    (sequence + 1..=190).for_each(|sequence| lake.add(&chain, sequence));
    let health = service.wait_until_stored(190);
    assert!(stored < 190 && health["oldest_ledger"] == 2, "{health}");
    service.stop();
}

#[test]
fn the_disk_reserve_is_not_used() {
    let Some(disk) = SmallDisk::new(100) else { return };
    configure(disk.path(), "[disk]\nreserve_mib = 40\nreserve_percent = 100\n");
    let chain = Chain::made(2, 120);
    let lake = LakeFiles::with(&chain, 2..=100);
    let service =
        Service::local(disk.path(), &["--source", &lake.text(), "--config", "orrery.toml"]);
    service.wait_until_stored(100);
    let before = service.rows_without_ids("/rest/events/by-ledger?limit=1000", "id");
    // Another program takes the space.
    let free = || {
        let disk = rustix::fs::statvfs(disk.path()).unwrap();
        disk.f_bavail * disk.f_frsize
    };
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; (free() - (39 << 20)) as usize]).unwrap();
    let mut sequence = 100;
    let health = wait_until("the lack of space is reported", || {
        sequence += u32::from(sequence < 110);
        lake.add(&chain, sequence);
        let health = service.health();
        (health["components"]["ingestion"]["status"] == "down").then_some(health)
    });
    let reason = health["components"]["ingestion"]["reason"].as_str().unwrap();
    assert!(reason.contains("MiB left, and 4") && reason.contains("disk.reserve_mib"), "{reason}");
    assert_eq!(health["service"], "down");
    assert!(free() > 35 << 20, "the reserve is left alone");
    let rows = service.rows_without_ids("/rest/events/by-ledger?limit=1000&to=100", "id");
    assert_eq!(rows, before, "stored events are still served");
    fs::remove_file(filler).unwrap();
    (sequence + 1..=120).for_each(|sequence| lake.add(&chain, sequence));
    let health = service.wait_until_stored(120);
    assert_eq!(health["oldest_ledger"], 2, "{health}");
    service.wait_for_health("it is up again", |health| health["service"] == "up");
    service.stop();
}
