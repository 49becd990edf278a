//! Client side of the control socket, used by the command line: blocking, one request at a time.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::protocol::{self, Greeting, HEADER, Kind};
use super::{
    BackfillReport, BackfillRequest, CheckpointReport, ControlError, NotStored, RebuildReport,
    RebuildRequest, SocketPath, StatusReport, Stored,
};

/// Timeout for the answer to the greeting, which a working service sends at once.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to the running service that has a data directory open.
pub struct Client {
    path: SocketPath,
    from: BufReader<UnixStream>,
    to: BufWriter<UnixStream>,
}

impl Client {
    /// Connects to the service of `data_dir`. Returns `None` when no service is listening there.
    pub fn connect(data_dir: &Path) -> Result<Option<Self>, ControlError> {
        let path = SocketPath::new(data_dir)?;
        let stream = match UnixStream::connect(path.short(SocketPath::NAME)) {
            Ok(stream) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(path.error(error)),
        };
        let reading = stream.try_clone().map_err(|error| path.error(error))?;
        let mut client = Self { path, from: BufReader::new(reading), to: BufWriter::new(stream) };
        client.limit_waiting(Some(GREETING_TIMEOUT))?;
        let own = protocol::encode(&Greeting::own())?;
        let greeting: Greeting = client.ask(Kind::Greeting, &own, Kind::Greeting)?;
        greeting.check()?;
        // Storing ledgers takes as long as the disk needs, so further answers have no timeout.
        client.limit_waiting(None)?;
        Ok(Some(client))
    }

    /// Sends ledgers to the service and returns when they are stored, or wait until validators attest
    /// them.
    pub fn store<'a>(
        &mut self,
        ledgers: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Result<Stored, NotStored>, ControlError> {
        for ledger in ledgers {
            self.send(Kind::Ledger, ledger)?;
        }
        self.stored(Kind::Store)
    }

    /// Says that no more ledgers follow. Returns when those that waited are stored.
    pub fn finish(&mut self) -> Result<Result<Stored, NotStored>, ControlError> {
        self.stored(Kind::StoreLast)
    }

    fn stored(&mut self, request: Kind) -> Result<Result<Stored, NotStored>, ControlError> {
        self.send(request, &[])?;
        self.flush()?;
        match self.receive()? {
            (Kind::Stored, payload) => Ok(Ok(protocol::decode(&payload)?)),
            (Kind::NotStored, payload) => Ok(Err(protocol::decode(&payload)?)),
            (kind, _) => Err(unexpected(kind)),
        }
    }

    /// Requests the status of the service.
    pub fn status(&mut self) -> Result<StatusReport, ControlError> {
        self.ask(Kind::Status, &[], Kind::Status)
    }

    /// Starts or cancels a backfill, or requests its progress.
    pub fn backfill(&mut self, request: &BackfillRequest) -> Result<BackfillReport, ControlError> {
        self.ask(Kind::Backfill, &protocol::encode(request)?, Kind::Backfill)
    }

    /// Starts rebuilding a consumer's rows, or requests the progress.
    pub fn rebuild(&mut self, request: &RebuildRequest) -> Result<RebuildReport, ControlError> {
        self.ask(Kind::Rebuild, &protocol::encode(request)?, Kind::Rebuild)
    }

    /// Requests a stored raw ledger, XDR. Returns `None` when it is not stored.
    pub fn raw_ledger(&mut self, ledger: u32) -> Result<Option<Vec<u8>>, ControlError> {
        self.send(Kind::Raw, &protocol::encode(&ledger)?)?;
        self.flush()?;
        match self.receive()? {
            (Kind::Ledger, xdr) => Ok(Some(xdr).filter(|xdr| !xdr.is_empty())),
            (kind, _) => Err(unexpected(kind)),
        }
    }

    /// Requests a checkpoint of the store to copy from. The service removes it when this connection
    /// ends, and it ends a connection that is idle for ten minutes.
    pub fn checkpoint(&mut self) -> Result<CheckpointReport, ControlError> {
        self.ask(Kind::Checkpoint, &[], Kind::Checkpoint)
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        payload: &[u8],
        answer: Kind,
    ) -> Result<T, ControlError> {
        self.send(kind, payload)?;
        self.flush()?;
        match self.receive()? {
            (found, payload) if found == answer => protocol::decode(&payload),
            (found, _) => Err(unexpected(found)),
        }
    }

    fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), ControlError> {
        let header = protocol::header(kind, payload)?;
        let sent = self.to.write_all(&header).and_then(|()| self.to.write_all(payload));
        sent.or_else(|error| self.refusal_or(error))
    }

    fn flush(&mut self) -> Result<(), ControlError> {
        self.to.flush().or_else(|error| self.refusal_or(error))
    }

    /// Returns the reason that the service sent before it closed the connection, if it sent one: it
    /// says more than "broken pipe".
    fn refusal_or(&mut self, error: io::Error) -> Result<(), ControlError> {
        match self.receive() {
            Err(refusal @ ControlError::Refused(_)) => Err(refusal),
            _ => Err(self.ended(error)),
        }
    }

    fn receive(&mut self) -> Result<(Kind, Vec<u8>), ControlError> {
        let mut header = [0; HEADER];
        self.from.read_exact(&mut header).map_err(|error| self.ended(error))?;
        let (kind, length) = protocol::parse_header(header, protocol::LONGEST_ANSWER)?;
        let mut payload = Vec::new();
        let read = self.from.by_ref().take(length).read_to_end(&mut payload);
        read.map_err(|error| self.ended(error))?;
        if payload.len() as u64 != length {
            return Err(ControlError::Closed);
        }
        if kind == Kind::Refused {
            return Err(ControlError::Refused(String::from_utf8_lossy(&payload).into_owned()));
        }
        Ok((kind, payload))
    }

    fn ended(&self, error: io::Error) -> ControlError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => ControlError::Closed,
            _ => self.path.error(error),
        }
    }

    fn limit_waiting(&self, limit: Option<Duration>) -> Result<(), ControlError> {
        let stream = self.from.get_ref();
        stream.set_read_timeout(limit).map_err(|error| self.path.error(error))
    }
}

fn unexpected(kind: Kind) -> ControlError {
    ControlError::Protocol(format!("{kind:?} is not an expected response"))
}
