//! Kills processes that store ledgers, at random moments.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::scratch::scratch;
use super::wait::wait_until;

/// A process that runs one test of this binary. The test does its work only in that process.
pub fn test_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).stdout(Stdio::null());
    command
}

/// Starts processes on new directories, each again and again until it ends by itself, and kills
/// `kills` of them. The first is not killed: it tells how long one takes.
///
/// `process` returns the command for a directory and a seed, `killed` is called after each kill,
/// and `ended` with each directory whose process has ended, and the number of that directory.
pub fn kill_repeatedly(
    kills: u64,
    rng: &mut ChaCha8Rng,
    process: impl Fn(&Path, u64) -> Command,
    killed: impl Fn(&Path),
    ended: impl Fn(&Path, u64),
) {
    let (mut count, mut rounds, mut seed) = (0, 0, 0);
    let mut whole = Duration::from_secs(2);
    while count < kills {
        let directory = scratch();
        rounds += 1;
        loop {
            seed += 1;
            let begun = Instant::now();
            let mut child = process(directory.path(), seed).spawn().unwrap();
            let is_left_alone = rounds == 1 || count == kills;
            let until = begun + whole.mul_f64(rng.random_range(0.1..1.0));
            let status = wait_until("the process ends, or is to be killed", || {
                let status = child.try_wait().unwrap();
                let is_over = status.is_some() || !is_left_alone && Instant::now() > until;
                is_over.then_some(status)
            });
            if let Some(status) = status {
                assert!(status.success(), "the process failed");
                if rounds == 1 {
                    whole = begun.elapsed();
                }
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            count += 1;
            killed(directory.path());
        }
        ended(directory.path(), rounds);
    }
    println!("{count} kills in {rounds} directories");
}
