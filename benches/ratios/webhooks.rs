//! P19, P20 and webhooks: throughput and latency of webhook deliveries, and their cost for
//! ingestion. Deliveries go through the whole service to a receiver in this process.

use std::error::Error;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use orrery::domain::{ContractId, Network};
use orrery::priority::PromptRuntime;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::amplify;
use super::indexing::raw;
use super::measure::{REPETITIONS, Sample, Sides, quantile, sized};
use super::pushes::{Load, subscribe, waiting};
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::{Running, wait_until};
use super::sink::{Posted, Sink};

const P19: Goal = Goal::at_least(0.7, 0.95);
const P20: Goal = Goal::at_most(100.0, 15.0);
/// Goal for ingestion while a subscription receives a popular contract's events, against ingestion
/// alone.
const BESIDE_WEBHOOKS: Goal = Goal::at_least(0.7, 0.95);

/// Number of subscriptions to the same events, equal to the maximum number of concurrent attempts
/// per server. The baseline client has as many connections.
const SUBSCRIPTIONS: usize = 8;
/// Minimum number of deliveries per repetition of P19, and of those before, which open the
/// connections while the service is still starting.
const DELIVERIES: usize = sized(50_000, 100);
const FIRST_DELIVERIES: usize = sized(5_000, 20);
/// Number of threads of the baseline client, as many as the service has for attempts.
const CLIENT_THREADS: usize = 2;
/// Copies of the recorded ledgers for the latency measurement, and for the ingestion measurement.
const PACED_COPIES: u64 = sized(9, 2);
const INGESTED_COPIES: u64 = sized(20, 4);
/// Pause after the deliveries of a ledger have arrived, before the next ledger closes.
const PAUSE: Duration = Duration::from_millis(20);
const OWNER: &str = "ratios";

/// Measures the selected goals of P19, P20 and webhooks.
pub fn run(
    recorded: &Recorded,
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let ledgers = amplify::chain(recorded, INGESTED_COPIES);
    let load = Load::of(&recorded.network, &ledgers, directory)?;
    let contract = load.busiest()?;
    let counts = load.counts(contract);
    let scene = Scene {
        network: &recorded.network,
        copy: recorded.ledgers.len(),
        ledgers: &ledgers,
        contract,
        counts: &counts,
        directory,
    };
    if wanted("P19") {
        scene.deliveries(report)?;
    }
    if wanted("P20") {
        scene.latency(report)?;
    }
    if wanted("webhooks") {
        scene.ingestion(report)?;
    }
    Ok(())
}

struct Scene<'a> {
    network: &'a Network,
    /// Ledgers per copy.
    copy: usize,
    ledgers: &'a [Vec<u8>],
    /// The contract with the most events.
    contract: ContractId,
    /// Number of the contract's events in each ledger.
    counts: &'a [usize],
    directory: &'a Path,
}

/// Starts a service that may deliver to receivers on this machine.
pub fn start(network: &Network, directory: &Path) -> Result<Running, Box<dyn Error>> {
    let local = "127.0.0.1/32".parse()?;
    Running::start(network, directory, |config| config.webhooks.allow_subnets = vec![local])
}

impl Scene<'_> {
    /// Starts a service with `subscriptions` subscriptions to all events of the contract.
    fn service(&self, sink: &Sink, subscriptions: usize) -> Result<Running, Box<dyn Error>> {
        let service = start(self.network, self.directory)?;
        let mut owner = service.client(OWNER)?;
        for number in 0..subscriptions {
            let (endpoint, contracts) =
                (sink.url(&number.to_string()), [self.contract.to_string()]);
            subscribe(
                &mut owner,
                &json!({ "webhook_endpoint": endpoint, "contract_ids": contracts }),
            )?;
        }
        Ok(service)
    }

    /// Measures P19.
    fn deliveries(&self, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let first = self.ledgers_with(0, FIRST_DELIVERIES);
        let measured = first..first + self.ledgers_with(first, DELIVERIES);
        let count = self.deliveries_of(measured.clone());
        let repetition = || -> Result<(f64, f64), Box<dyn Error>> {
            let sink = Sink::start()?;
            let ours = self.deliveries_per_second(&sink, measured.clone())?;
            let sample = sink.sample().ok_or("nothing was delivered")?;
            Ok((ours, raw_per_second(&sink, sample, count)?))
        };
        let sides = (0..REPETITIONS).map(|_| repetition()).collect::<Result<Sides, _>>()?;
        report.note(format!(
            "P19: {count} deliveries a repetition, of {} ledgers to {SUBSCRIPTIONS} subscriptions on one server, from \
             the first ledger's bytes until all are noted; the bare client has as many connections and threads, of the \
             same priority, and sends what one of the deliveries was. The receiver is in the same process.",
            measured.len(),
        ));
        let name = "P19 webhook deliveries / bare hyper client to the same receiver";
        report.add(Row::new(name, "deliveries/s", sides, P19));
        Ok(())
    }

    /// Returns how many ledgers, beginning with the one at `first`, cause at least this number of
    /// deliveries; fewer if there are not enough.
    fn ledgers_with(&self, first: usize, deliveries: usize) -> usize {
        let rest = self.ledgers.len() - first;
        let is_enough = |count: &usize| self.deliveries_of(first..first + count) >= deliveries;
        (1..rest).find(is_enough).unwrap_or(rest)
    }

    /// Returns the number of deliveries that ledgers cause.
    fn deliveries_of(&self, ledgers: Range<usize>) -> usize {
        SUBSCRIPTIONS * self.counts[ledgers].iter().sum::<usize>()
    }

    fn deliveries_per_second(
        &self,
        sink: &Sink,
        measured: Range<usize>,
    ) -> Result<f64, Box<dyn Error>> {
        let service = self.service(sink, SUBSCRIPTIONS)?;
        let first = self.deliveries_of(0..measured.start);
        service.seconds_to_ingest(&self.ledgers[..measured.start])?;
        sink.wait_for_count(first)?;
        wait_until_deliveries_recorded(&service, OWNER)?;
        let begun = Instant::now();
        service.seconds_to_ingest(&self.ledgers[measured.clone()])?;
        let expected = self.deliveries_of(measured);
        sink.wait_for_count(first + expected)?;
        wait_until_deliveries_recorded(&service, OWNER)?;
        let seconds = begun.elapsed().as_secs_f64();
        let came = sink.count();
        service.stop()?;
        match came == first + expected {
            true => Ok(expected as f64 / seconds),
            false => Err(format!("{came} deliveries of {}", first + expected).into()),
        }
    }

    /// Measures P20.
    fn latency(&self, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let (mut worst, mut usual, mut last) = (Vec::new(), Vec::new(), Vec::new());
        let ledgers = PACED_COPIES as usize * self.copy;
        for _ in 0..REPETITIONS {
            let (first_bytes, last_bytes) = self.delivery_latencies(&self.ledgers[..ledgers])?;
            worst.push(quantile(&first_bytes, 0.99));
            usual.push(quantile(&first_bytes, 0.5));
            last.push(quantile(&last_bytes, 0.5));
        }
        report.note(format!(
            "P20: {} ledgers a repetition, one at a time, each as in P1 with {} deliveries of one subscription, which \
             are made one after the other; median of the first {:.1} ms, of the last {:.1} ms.",
            ledgers - self.copy,
            self.counts.iter().sum::<usize>() / self.counts.len(),
            Sample::from(usual).median(),
            Sample::from(last).median(),
        ));
        let name = "P20 ledger bytes to first byte of a webhook, p99";
        report.add(Row::absolute(name, "ms", Sample::from(worst), P20));
        Ok(())
    }

    /// Returns the milliseconds until the first delivery of each ledger began to arrive, and until
    /// the last one did, without those of the first copy.
    fn delivery_latencies(
        &self,
        ledgers: &[Vec<u8>],
    ) -> Result<(Vec<f64>, Vec<f64>), Box<dyn Error>> {
        let sink = Sink::start()?;
        let service = self.service(&sink, 1)?;
        let (mut first, mut last) = (Vec::new(), Vec::new());
        thread::scope(|scope| -> Result<(), Box<dyn Error>> {
            let (closed, coming) = sync_channel(1);
            let ingesting = scope.spawn(|| service.ingest(coming.into_iter()));
            for (xdr, count) in ledgers.iter().zip(self.counts) {
                let ledger = raw(xdr);
                let begun = Instant::now();
                if closed.send(ledger).is_err() {
                    break;
                }
                sink.wait_for_count(*count)?;
                let came = sink.take();
                let ms = |at: &Instant| at.duration_since(begun).as_secs_f64() * 1e3;
                first.extend(came.iter().min().map(ms));
                last.extend(came.iter().max().map(ms));
                thread::sleep(PAUSE);
            }
            drop(closed);
            let ingested = ingesting.join().map_err(|_| "ingestion panicked")?;
            ingested.map_err(|error| Box::<dyn Error>::from(error.to_string()))
        })?;
        service.stop()?;
        match first.len() > self.copy {
            true => Ok((first.split_off(self.copy), last.split_off(self.copy))),
            false => Err(format!("of {} ledgers only came deliveries", first.len()).into()),
        }
    }

    /// Measures the cost of deliveries for ingestion.
    fn ingestion(&self, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let measured = |subscriptions: usize| -> Result<(f64, usize), Box<dyn Error>> {
            let sink = Sink::start()?;
            let service = self.service(&sink, subscriptions)?;
            service.seconds_to_ingest(&self.ledgers[..self.copy])?;
            let rest = &self.ledgers[self.copy..];
            let seconds = service.seconds_to_ingest(rest)?;
            let came = sink.count();
            service.stop()?;
            Ok((rest.len() as f64 / seconds, came))
        };
        let mut arrived = Vec::new();
        let mut repetition = || -> Result<(f64, f64), Box<dyn Error>> {
            let (with, came) = measured(1)?;
            arrived.push(came as f64);
            Ok((with, measured(0)?.0))
        };
        let sides = (0..REPETITIONS).map(|_| repetition()).collect::<Result<Sides, _>>()?;
        report.note(format!(
            "Webhooks: {} ledgers as in P1, as fast as they are stored; {:.0} events a ledger match, of which {:.0} in \
             all had been delivered by the time that the last ledger was stored.",
            self.ledgers.len() - self.copy,
            self.counts.iter().sum::<usize>() as f64 / self.counts.len() as f64,
            Sample::from(arrived).median(),
        ));
        let name = "Ingestion while a popular contract's events are delivered / alone";
        report.add(Row::new(name, "ledgers/s", sides, BESIDE_WEBHOOKS));
        Ok(())
    }
}

/// Waits until the outcomes of all deliveries of an owner are recorded.
pub fn wait_until_deliveries_recorded(
    service: &Running,
    owner: &str,
) -> Result<(), Box<dyn Error>> {
    // A new connection, because the server closes connections that are idle for long.
    let (mut client, mut failed) = (service.client(owner)?, None);
    wait_until("all outcomes are written", || match waiting(&mut client) {
        Ok(waiting) => waiting == 0,
        Err(error) => {
            failed = Some(error);
            true
        }
    })?;
    failed.map_or(Ok(()), Err)
}

/// Returns the requests per second of a client that does nothing else, over as many connections as
/// there are subscriptions.
fn raw_per_second(sink: &Sink, sample: Posted, count: usize) -> Result<f64, Box<dyn Error>> {
    // With another priority than the receiver's, it would be preempted by the receiver more or less
    // often than the service's attempts.
    let runtime = PromptRuntime::start("bare-client", CLIENT_THREADS)?;
    let (sample, address) = (Arc::new(sample), sink.address);
    let each = count / SUBSCRIPTIONS;
    let clients = async move {
        let begun = Instant::now();
        let mut clients = JoinSet::new();
        for _ in 0..SUBSCRIPTIONS {
            let sample = Arc::clone(&sample);
            clients.spawn(async move {
                post(address, &sample, each).await.map_err(|error| error.to_string())
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.map_err(|error| error.to_string())??;
        }
        Ok::<_, String>((each * SUBSCRIPTIONS) as f64 / begun.elapsed().as_secs_f64())
    };
    Ok(Runtime::new()?.block_on(runtime.handle().spawn(clients))??)
}

/// Sends a request `times` times over one connection.
async fn post(
    address: SocketAddr,
    sample: &Posted,
    times: usize,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let body = Bytes::from(sample.body.clone());
    for _ in 0..times {
        let mut request = Request::post(&sample.path);
        for (name, value) in &sample.headers {
            request = request.header(name, value);
        }
        client.ready().await?;
        let answer = client.send_request(request.body(Full::new(body.clone()))?).await?;
        if !answer.status().is_success() {
            return Err(format!("the receiver answers {}", answer.status()).into());
        }
        answer.into_body().collect().await?;
    }
    drop(client);
    Ok(connection.await??)
}
