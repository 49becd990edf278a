//! Bytes on the wire as the system reports them: sent by one side and not yet read by the other
//! (proc_net(5), `/proc/net/tcp`).

/// Returns the number of bytes on their way to a local port: not sent yet, not acknowledged, or
/// arrived and not read.
pub fn bytes_under_way(port: u16) -> u64 {
    let (to_come, unread) = bytes_to(port);
    to_come + unread
}

/// Returns the bytes for a local port: those given to the system that have not arrived, and those
/// that arrived and were not read. A connection that was reset has neither.
pub fn bytes_to(port: u16) -> (u64, u64) {
    let connections = Connection::all();
    let to_come = connections.iter().filter(|it| it.remote == port).map(|it| it.unsent);
    let unread = connections.iter().filter(|it| it.local == port).map(|it| it.unread);
    (to_come.sum(), unread.sum())
}

struct Connection {
    local: u16,
    remote: u16,
    unsent: u64,
    unread: u64,
}

impl Connection {
    /// Returns all IPv4 connections, without listening sockets.
    fn all() -> Vec<Self> {
        const LISTENS: &str = "0A";
        let text = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let lines = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let connections = lines.filter(|fields| fields[3] != LISTENS);
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let port = |address: &str| number(address.split_once(':').unwrap().1) as u16;
        connections
            .map(|fields| {
                let (unsent, unread) = fields[4].split_once(':').unwrap();
                Self {
                    local: port(fields[1]),
                    remote: port(fields[2]),
                    unsent: number(unsent),
                    unread: number(unread),
                }
            })
            .collect()
    }
}
