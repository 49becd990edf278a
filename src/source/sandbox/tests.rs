use super::*;
#[test]
fn dump() {
    let config = SandboxConfig {
        network: Network::from_name_or_passphrase("local"),
        seed: 7,
        start_time: 1_800_000_000,
        close_interval: 1,
        transactions_per_ledger: 4..=8,
    };
    let mut sandbox = Sandbox::new(config).unwrap();
    let count: u32 = std::env::var("N").map_or(100, |n| n.parse().unwrap());
    let started = std::time::Instant::now();
    let mut out = Vec::new();
    for _ in 0..count {
        let bytes = sandbox.next_ledger().unwrap();
        out.extend((0x8000_0000u32 | bytes.len() as u32).to_be_bytes());
        out.extend(bytes);
    }
    let took = started.elapsed();
    println!("{count} ledgers in {took:?}: {:.0}/s, {} bytes, {} entries", f64::from(count) / took.as_secs_f64(), out.len(), sandbox.state.entries().count());
    std::fs::write("/tmp/sbx/out.xdr", out).unwrap();
}
