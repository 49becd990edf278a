//! Server side of the control socket, in the running service.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{interval, timeout};

use super::protocol::{self, Greeting, HEADER, Kind, LONGEST_REQUEST, MAX_BYTES, MAX_LEDGERS};
use super::{ControlError, HeldCheckpoint, Import, Service, SocketPath};

/// Maximum number of connections at a time: each may hold a batch of ledgers in memory.
const MAX_CONNECTIONS: usize = 4;
/// Times after which the connection of an inactive client is closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Time that a client has to send its greeting.
    pub greeting: Duration,
    /// Time between two requests; a client that sends ledgers reads files meanwhile.
    pub idle: Duration,
    /// Time without any new byte of a payload, and time that a client may take to read one piece of
    /// a response.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            greeting: Duration::from_secs(5),
            idle: Duration::from_secs(600),
            stall: Duration::from_secs(30),
        }
    }
}

/// Maximum number of bytes that are read or written under one [`Timeouts::stall`].
const PIECE: usize = 1 << 20;
/// Interval between two looks whether the socket's file is still there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Permissions of the socket: only its owner may read and write.
const ONLY_OWNER: u32 = 0o600;

/// The control socket of a data directory. Dropping it removes the socket's file.
pub struct Listener {
    path: SocketPath,
    listener: UnixListener,
    pub(super) timeouts: Timeouts,
}

impl Listener {
    /// Opens the socket, readable and writable for its owner alone. The caller holds the
    /// directory's lock, so an existing socket file is left over from a crash and is replaced.
    pub fn bind(data_dir: &Path) -> Result<Self, ControlError> {
        let path = SocketPath::new(data_dir)?;
        let listener = Self::bind_at(&path)?;
        Ok(Self { path, listener, timeouts: Timeouts::default() })
    }

    fn bind_at(path: &SocketPath) -> Result<UnixListener, ControlError> {
        // Bound under another name first, so that it is never reachable with other permissions.
        let unfinished = path.short("control.sock.new");
        let io = |error| path.error(error);
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&unfinished).map_err(io)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(ONLY_OWNER)).map_err(io)?;
        fs::rename(&unfinished, path.short(SocketPath::NAME)).map_err(io)?;
        Ok(listener)
    }

    /// Opens the socket again if somebody has removed its file, so that clients find this service.
    fn bind_if_gone(&self) -> Option<UnixListener> {
        let found = fs::symlink_metadata(self.path.short(SocketPath::NAME));
        if !found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return None;
        }
        match Self::bind_at(&self.path) {
            Ok(listener) => {
                tracing::warn!("the control socket was removed; it is open again");
                Some(listener)
            }
            Err(error) => {
                tracing::debug!(%error, "the control socket could not be opened again");
                None
            }
        }
    }

    /// Serves connections until `stop` turns true. A batch that is being stored at that time is
    /// still completed and acknowledged. May be called again after a panic, which closes the
    /// connections.
    pub async fn serve(self: Arc<Self>, service: Arc<dyn Service>, stop: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        let mut stopping = pin!(stopped(stop.clone()));
        let mut reopened: Option<UnixListener> = None;
        let mut looks = interval(LOOK_INTERVAL);
        loop {
            let listener = reopened.as_ref().unwrap_or(&self.listener);
            let room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                () = &mut stopping => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                _ = looks.tick() => reopened = self.bind_if_gone().or(reopened),
                accepted = listener.accept(), if room => match accepted {
                    Ok((stream, _)) => {
                        let connection = Connection::new(stream, Arc::clone(&service), self.timeouts);
                        connections.spawn(connection.run(stop.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the control socket could not accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        while connections.join_next().await.is_some() {}
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(self.path.short(SocketPath::NAME)) {
            tracing::debug!(%error, "the control socket could not be removed");
        }
    }
}

struct Connection {
    stream: BufReader<UnixStream>,
    service: Arc<dyn Service>,
    ledgers: Vec<Vec<u8>>,
    bytes: u64,
    /// The ledgers of the client, once it has sent some.
    import: Option<Box<dyn Import>>,
    greeted: bool,
    /// The checkpoint that the client is copying from.
    checkpoint: Option<HeldCheckpoint>,
    timeouts: Timeouts,
}

impl Connection {
    fn new(stream: UnixStream, service: Arc<dyn Service>, timeouts: Timeouts) -> Self {
        let stream = BufReader::with_capacity(128 << 10, stream);
        let (ledgers, import, checkpoint) = (Vec::new(), None, None);
        Self { stream, service, ledgers, bytes: 0, import, greeted: false, checkpoint, timeouts }
    }

    async fn run(mut self, stop: watch::Receiver<bool>) {
        self.answer_requests(stop).await;
        self.release().await;
    }

    /// Removes the checkpoint that the client was copying from.
    async fn release(&mut self) {
        let Some(checkpoint) = self.checkpoint.take() else { return };
        if let Err(error) = blocking(move || drop(checkpoint)).await {
            tracing::warn!(%error, "the removal of a checkpoint failed");
        }
    }

    async fn answer_requests(&mut self, stop: watch::Receiver<bool>) {
        let mut stopping = pin!(stopped(stop));
        loop {
            let frame = tokio::select! {
                biased;
                () = &mut stopping => {
                    Err(ControlError::Refused("the service is stopping".to_owned()))
                }
                frame = self.receive() => frame,
            };
            let answered = match frame {
                Ok((kind, payload)) => self.answer(kind, payload).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(()) => {}
                Err(ControlError::Closed) => return,
                Err(error) => {
                    // The client may have disconnected already, so a failure to send is ignored.
                    let _ = self.send(Kind::Refused, error.to_string().as_bytes()).await;
                    return;
                }
            }
        }
    }

    async fn answer(&mut self, kind: Kind, payload: Vec<u8>) -> Result<(), ControlError> {
        if kind.follows_greeting() && !self.greeted {
            return Err(ControlError::Protocol("the first frame must be a greeting".to_owned()));
        }
        match kind {
            Kind::Greeting => {
                protocol::decode::<Greeting>(&payload)?.check()?;
                self.greeted = true;
                self.send(Kind::Greeting, &protocol::encode(&Greeting::own())?).await
            }
            Kind::Ledger => self.add_ledger(payload),
            Kind::Store => self.store(false).await,
            Kind::StoreLast => self.store(true).await,
            Kind::Status => {
                let status = self.ask(|service| service.status()).await?;
                self.send(kind, &protocol::encode(&status)?).await
            }
            Kind::Backfill => {
                let request = protocol::decode(&payload)?;
                let report = self.ask(move |service| service.backfill(request)).await?;
                self.send(kind, &protocol::encode(&report)?).await
            }
            Kind::Rebuild => {
                let request = protocol::decode(&payload)?;
                let report = self.ask(move |service| service.rebuild(request)).await?;
                self.send(kind, &protocol::encode(&report)?).await
            }
            Kind::Raw => {
                let ledger = protocol::decode(&payload)?;
                let raw = self.ask(move |service| service.raw_ledger(ledger)).await?;
                self.send(Kind::Ledger, &raw.unwrap_or_default()).await
            }
            Kind::Checkpoint => {
                self.release().await;
                let checkpoint = self.ask(|service| service.checkpoint()).await?;
                let report = protocol::encode(&checkpoint.report)?;
                self.checkpoint = Some(checkpoint);
                self.send(kind, &report).await
            }
            Kind::Stored | Kind::NotStored | Kind::Refused => {
                Err(ControlError::Protocol(format!("{kind:?} is not a request")))
            }
        }
    }

    /// Asks the service, whose answer may take time.
    async fn ask<T: Send + 'static>(
        &mut self,
        question: impl FnOnce(&dyn Service) -> Result<T, String> + Send + 'static,
    ) -> Result<T, ControlError> {
        let service = Arc::clone(&self.service);
        blocking(move || question(&*service)).await?.map_err(ControlError::Refused)
    }

    fn add_ledger(&mut self, ledger: Vec<u8>) -> Result<(), ControlError> {
        self.bytes += ledger.len() as u64;
        self.ledgers.push(ledger);
        if self.ledgers.len() > MAX_LEDGERS || self.bytes > MAX_BYTES {
            let text = "too many ledgers were sent without storing them".to_owned();
            return Err(ControlError::Protocol(text));
        }
        Ok(())
    }

    async fn store(&mut self, are_last: bool) -> Result<(), ControlError> {
        self.bytes = 0;
        let ledgers = std::mem::take(&mut self.ledgers);
        let mut import = self.import.take().unwrap_or_else(|| self.service.import());
        let stored = blocking(move || {
            let stored = import.store(ledgers, are_last);
            (import, stored)
        });
        let (import, stored) = stored.await?;
        self.import = Some(import);
        match stored {
            Ok(stored) => self.send(Kind::Stored, &protocol::encode(&stored)?).await,
            Err(refused) => self.send(Kind::NotStored, &protocol::encode(&refused)?).await,
        }
    }

    async fn receive(&mut self) -> Result<(Kind, Vec<u8>), ControlError> {
        let Timeouts { greeting, idle, stall } = self.timeouts;
        let mut header = [0; HEADER];
        let waits = if self.greeted { idle } else { greeting };
        let begun = timeout(waits, self.stream.read_exact(&mut header)).await;
        begun.map_err(|_| timed_out(waits))?.map_err(|_| ControlError::Closed)?;
        let (kind, length) = protocol::parse_header(header, LONGEST_REQUEST)?;
        let mut payload = Vec::new();
        // The buffer grows with the received bytes, so a header alone reserves no memory.
        while (payload.len() as u64) < length {
            let piece = (length - payload.len() as u64).min(PIECE as u64);
            let mut rest = (&mut self.stream).take(piece);
            let read = timeout(stall, rest.read_buf(&mut payload)).await;
            if read.map_err(|_| timed_out(stall))?.map_err(|_| ControlError::Closed)? == 0 {
                return Err(ControlError::Closed);
            }
        }
        Ok((kind, payload))
    }

    async fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), ControlError> {
        let header = protocol::header(kind, payload)?;
        let stream = self.stream.get_mut();
        for piece in std::iter::once(&header[..]).chain(payload.chunks(PIECE)) {
            // A client that does not read its response would not read an error either, so none is
            // sent.
            let sent = timeout(self.timeouts.stall, stream.write_all(piece)).await;
            sent.map_err(|_| ControlError::Closed)?.map_err(|_| ControlError::Closed)?;
        }
        Ok(())
    }
}

fn timed_out(waited: Duration) -> ControlError {
    ControlError::Protocol(format!("nothing was received for {} s", waited.as_secs()))
}

/// Returns when `stop` turns true, or its sender is dropped.
async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ControlError> {
    spawn_blocking(work)
        .await
        .map_err(|error| ControlError::Refused(format!("the service failed: {error}")))
}
