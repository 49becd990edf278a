//! A thousand clients that read event streams concurrently: the time until each of them has the
//! events of a ledger.

use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

use super::indexing::{LedgersWithCalls, raw};
use super::measure::{REPETITIONS, Sample, quantile, sized};
use super::pushes::Load;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::{Running, wait_until};

const STREAM_LATENCY: Goal = Goal::at_most(50.0, 15.0);

const STREAMS: usize = sized(1000, PER_TOKEN);
/// Streams per token; below the limit for one token.
const PER_TOKEN: usize = 50;
/// Copies of the recorded ledgers per repetition; the first is a warm-up.
const COPIES: u64 = sized(5, 2);
/// Deposits per ledger, whose events match the streams.
const EVENTS: usize = 2;
/// Pause after all streams have the events of a ledger, before the next ledger closes.
const PAUSE: Duration = Duration::from_millis(20);
/// Byte sequence that each message of a stream contains exactly once, and nothing else in a stream
/// contains.
const DATA: &[u8] = b"\ndata: ";

/// Measures the latency of streams.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let busy = LedgersWithCalls::new(recorded, COPIES, EVENTS);
    let counts = Load::of(busy.network, &busy.ledgers, directory)?.counts(busy.deposits());
    if counts.contains(&0) {
        return Err("a ledger has no event for the streams".into());
    }
    let (mut worst, mut usual) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let times = repetition(&busy, &counts, recorded.ledgers.len(), directory)?;
        worst.push(quantile(&times, 0.99));
        usual.push(quantile(&times, 0.5));
    }
    report.note(format!(
        "Streams: {STREAMS} clients read one contract's {} events of each ledger, of a thousand events in all; {} ledgers \
         a repetition, one at a time; until a client has the last of them, of all clients and ledgers, the median is \
         {:.1} ms. The clients are one thread of the same process.",
        counts.iter().sum::<usize>() / counts.len(),
        busy.ledgers.len() - recorded.ledgers.len(),
        Sample::from(usual).median(),
    ));
    let name = "Ledger bytes to each of 1,000 streams, p99";
    report.add(Row::absolute(name, "ms", Sample::from(worst), STREAM_LATENCY));
    Ok(())
}

/// Times at which streams had all events of a ledger, in order of occurrence.
type Arrivals = Arc<Mutex<Vec<Instant>>>;

/// Returns the milliseconds that each ledger except the first ones took to reach each stream.
fn repetition(
    busy: &LedgersWithCalls<'_>,
    counts: &[usize],
    first: usize,
    directory: &Path,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let many = NonZeroU32::new(4 * STREAMS as u32).ok_or("there are streams")?;
    let service = Running::start(busy.network, directory, |config| {
        config.http.connections = many;
        config.limits.connections_per_address = many;
        config.limits.streams = many;
    })?;
    let tokens: Vec<_> = (0..STREAMS.div_ceil(PER_TOKEN))
        .map(|number| service.token(&format!("reader-{number}")))
        .collect::<Result<_, _>>()?;
    let (opened, had) = (Arrivals::default(), Arrivals::default());
    // The first error of a client; the next wait for arrivals fails with it.
    let failed: Arc<Mutex<Option<String>>> = Arc::default();
    let clients = Clients::start(service.address, busy, counts, tokens, &opened, &had, &failed)?;
    let all = |arrivals: &Arrivals, count: usize| {
        let is_there = || arrivals.lock().len() >= count || failed.lock().is_some();
        wait_until(&format!("{count} arrivals"), is_there)?;
        let failed = failed.lock().take();
        failed.map_or(Ok(()), |why| Err(Box::<dyn Error>::from(why)))
    };
    all(&opened, STREAMS)?;
    let mut times = Vec::with_capacity(STREAMS * busy.ledgers.len());
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let (closed, ledgers) = sync_channel(1);
        let ingesting = scope.spawn(|| service.ingest(ledgers.into_iter()));
        for (number, xdr) in busy.ledgers.iter().enumerate() {
            let ledger = raw(xdr);
            let begun = Instant::now();
            if closed.send(ledger).is_err() {
                break;
            }
            all(&had, STREAMS)?;
            let arrivals = std::mem::take(&mut *had.lock());
            if number >= first {
                let ms = |at: &Instant| at.duration_since(begun).as_secs_f64() * 1e3;
                times.extend(arrivals.iter().map(ms));
            }
            thread::sleep(PAUSE);
        }
        drop(closed);
        let ingested = ingesting.join().map_err(|_| "ingestion panicked")?;
        ingested.map_err(|error| Box::<dyn Error>::from(error.to_string()))
    })?;
    drop(clients);
    service.stop()?;
    Ok(times)
}

/// The clients, stopped when dropped.
struct Clients(Option<tokio::runtime::Runtime>);

impl Clients {
    fn start(
        address: SocketAddr,
        busy: &LedgersWithCalls<'_>,
        counts: &[usize],
        tokens: Vec<String>,
        opened: &Arrivals,
        had: &Arrivals,
        failed: &Arc<Mutex<Option<String>>>,
    ) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let counts: Arc<[usize]> = counts.into();
        for number in 0..STREAMS {
            let request = format!(
                "GET /rest/events/stream?contract_id={} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
                busy.deposits(),
                tokens[number / PER_TOKEN],
            );
            let (counts, failed) = (Arc::clone(&counts), Arc::clone(failed));
            let (opened, had) = (Arc::clone(opened), Arc::clone(had));
            runtime.spawn(async move {
                let ended = read(address, &request, &counts, &opened, &had).await;
                if let Err(error) = ended {
                    failed.lock().get_or_insert_with(|| error.to_string());
                }
            });
        }
        Ok(Self(Some(runtime)))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reads one stream until the events of all ledgers have arrived.
async fn read(
    address: SocketAddr,
    request: &str,
    counts: &[usize],
    opened: &Arrivals,
    had: &Arrivals,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let (mut buffer, mut filled) = (vec![0; 64 << 10], 0);
    // Reads the head and the start of the stream, which is its position.
    while !contains(&buffer[..filled], b"\nid: ") {
        filled += match stream.read(&mut buffer[filled..]).await? {
            0 => return Err(String::from_utf8_lossy(&buffer[..filled]).into()),
            read => read,
        };
    }
    if !buffer.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(&buffer[..filled]).into());
    }
    opened.lock().push(Instant::now());
    for count in counts {
        let mut messages = 0;
        filled = 0;
        while messages < *count {
            let read = match stream.read(&mut buffer[filled..]).await? {
                0 => return Err("a stream ended".into()),
                read => read,
            };
            filled += read;
            messages += buffer[..filled].windows(DATA.len()).filter(|part| *part == DATA).count();
            // Keeps the last bytes, which may be the start of the next marker.
            let kept = filled.min(DATA.len() - 1);
            buffer.copy_within(filled - kept..filled, 0);
            filled = kept;
        }
        had.lock().push(Instant::now());
    }
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
