//! Copies the rows of projects into databases that the operator has: each sink of the settings is one, and gets the
//! rows of its projects live, exactly once. What is there, the database alone says (`orrery_postgres`); what should be
//! there, the log of each project's rows (`orrery_programs`).
//!
//! A sink has two threads. One adds live rows, project by project (`live`). The other fills tables beside those that
//! everybody sees, when earlier rows have changed, and puts them in their places (`filling`). Neither delays anything
//! else: rows stay in the store as long as their program, whether a database takes them or not.

#![deny(unsafe_code)]

mod address;
mod commands;
mod equal;
mod filling;
mod gather;
mod layout;
mod live;
mod presence;
mod report;
mod sink;
mod state;
mod test;
mod values;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use orrery_postgres::Writer;
use orrery_programs::Programs;
use orrery_runtime::observe::health::Health;
use orrery_runtime::observe::metrics::Metrics;
use orrery_runtime::priority::Priority;
use orrery_runtime::supervision::Supervised;
use orrery_settings as settings;
use orrery_store::Store;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use filling::Filler;
use gather::Source;
pub use report::{
    SinkCheckedTable, SinkProjectReport, SinkProjectRequest, SinkProjectState, SinkRemoval,
    SinkReport, SinkRequest, SinkTableReport, SinkTestReport,
};
use sink::Sink;
pub use test::test;

/// Stack of a sink's threads, in bytes: values of contracts are deep.
const STACK: usize = 16 << 20;

/// What sinks depend on.
pub struct SinkDeps {
    /// The programs whose rows are copied.
    pub programs: Arc<Programs>,
    /// The store that they are in.
    pub store: Arc<Store>,
    /// Where the state of each sink is reported, as the component `sink.NAME`.
    pub health: Arc<Health>,
    /// Where their progress is counted.
    pub metrics: Arc<Metrics>,
    /// What distinguishes the data directory from all others, its copies included.
    pub writer: String,
    /// What people know the service by, such as its host and data directory.
    pub writer_name: String,
    /// Returns the current time in UNIX milliseconds: the clock by which programs note when rows are arranged anew.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Moves the bytes of connections.
    pub runtime: Handle,
    /// Turns true when the service stops.
    pub stop: watch::Receiver<bool>,
}

/// Returns the name of a sink's component in health. To be called once for each sink of a process: health has names that
/// live as long as it.
pub fn component(sink: &str) -> &'static str {
    Box::leak(format!("sink.{sink}").into_boxed_str())
}

/// All sinks of a service, with their threads.
pub struct Sinks {
    sinks: Vec<Arc<Sink>>,
    runtime: Handle,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Sinks {
    /// Starts the sinks of the settings.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(settings: &settings::Sinks, deps: &SinkDeps) -> io::Result<Self> {
        let sinks: Vec<Arc<Sink>> =
            settings.0.iter().map(|(name, it)| Arc::new(Sink::new(name, it, deps))).collect();
        let started = Self { sinks, runtime: deps.runtime.clone(), threads: Mutex::default() };
        for sink in &started.sinks {
            let waiting = Arc::downgrade(sink);
            deps.programs.listen(move || {
                if let Some(sink) = waiting.upgrade() {
                    sink.wake_live.notify_one();
                }
            });
            started
                .spawn(sink, Priority::Prompt, |sink, runtime| runtime.block_on(live::run(sink)))?;
            started.spawn(sink, Priority::Background, |sink, runtime| {
                Filler::new(sink, runtime.clone()).run();
            })?;
        }
        Ok(started)
    }

    fn spawn(
        &self,
        sink: &Arc<Sink>,
        priority: Priority,
        work: impl Fn(&Sink, &Handle) + Send + 'static,
    ) -> io::Result<()> {
        let (sink, runtime) = (Arc::clone(sink), self.runtime.clone());
        let supervised = Supervised::new(sink.component, sink.component, &sink.health);
        let name = sink.component.to_owned();
        let thread = thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
            priority.apply_to_current_thread();
            supervised.run(|| sink.is_stopping(), || work(&sink, &runtime));
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Waits until the threads have ended, after the service's stop was said.
    pub fn join(&self) {
        for sink in &self.sinks {
            sink.wake_live.notify_one();
            sink.wake_filling.notify_one();
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("the thread of a sink did not stop cleanly");
            }
        }
    }

    fn find(&self, name: &str) -> Result<&Arc<Sink>, String> {
        self.sinks.iter().find(|sink| sink.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.sinks.iter().map(|sink| sink.name.as_str()).collect();
            match names.is_empty() {
                true => format!("there is no sink {name}: the service has none, see [sinks.NAME] in the settings"),
                false => format!("there is no sink {name}: the service has {}", names.join(", ")),
            }
        })
    }

    /// Waits for an answer, unless the service stops.
    fn block<T>(
        &self,
        sink: &Sink,
        answer: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        self.runtime.block_on(async {
            tokio::select! {
                answer = answer => answer,
                () = sink.stopped() => Err("the service stops".to_owned()),
            }
        })
    }

    /// Returns all sinks with their projects, sorted by name.
    pub fn reports(&self) -> Vec<SinkReport> {
        self.sinks.iter().map(|sink| sink.report()).collect()
    }

    /// Returns what a sink's server is, and what is missing there. Blocks.
    ///
    /// # Errors
    /// A sentence, when there is no such sink, or its server cannot be asked.
    pub fn test(&self, request: &SinkRequest) -> Result<SinkTestReport, String> {
        let sink = self.find(&request.sink)?;
        self.block(sink, sink.test())
    }

    /// Compares the tables of a project with its log. Blocks for as long as they are large.
    ///
    /// # Errors
    /// A sentence, when there is no such sink or project, or it cannot be compared.
    pub fn check(&self, request: &SinkProjectRequest) -> Result<Vec<SinkCheckedTable>, String> {
        let sink = self.find(&request.sink)?;
        self.block(sink, sink.check(&request.project))
    }

    /// Has the tables of a project filled again, whatever others made on them. Does not wait for it: a service that is
    /// stopped before it is done goes on when it is started again.
    ///
    /// # Errors
    /// A sentence, when there is no such sink or project, or the order cannot be noted in the database.
    pub fn replace(&self, request: &SinkProjectRequest) -> Result<SinkProjectReport, String> {
        let sink = self.find(&request.sink)?;
        self.block(sink, sink.replace(&request.project))
    }

    /// Removes a project from a sink's database. Blocks.
    ///
    /// # Errors
    /// A sentence, when the sink still has the project, or its server cannot be asked.
    pub fn remove(&self, request: &SinkRemoval) -> Result<(), String> {
        let sink = self.find(&request.sink)?;
        self.block(sink, sink.remove(request))
    }
}

impl Sink {
    fn new(name: &str, settings: &settings::Sink, deps: &SinkDeps) -> Self {
        let component = component(name);
        deps.health.up_by_default(component);
        Self {
            name: name.to_owned(),
            component,
            settings: settings.clone(),
            writer: Writer {
                network: deps.store.network().passphrase().to_owned(),
                sink: name.to_owned(),
                id: deps.writer.clone(),
                name: deps.writer_name.clone(),
            },
            source: Source { programs: Arc::clone(&deps.programs), store: Arc::clone(&deps.store) },
            state: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            wake_live: Notify::new(),
            wake_filling: Notify::new(),
            stop: deps.stop.clone(),
            clock: Arc::clone(&deps.clock),
            health: Arc::clone(&deps.health),
            metrics: Arc::clone(&deps.metrics),
        }
    }
}
