//! What the service is asked to do about sinks.

use orrery_postgres::{Cursor, RowsDigest, check, names, release, remove};

use super::address;
use super::equal::table_digests;
use super::gather::{Made, generation_of};
use super::report::{
    SinkCheckedTable, SinkProjectReport, SinkProjectState, SinkRemoval, SinkTestReport,
};
use super::sink::Sink;
use super::state::ORDERED;

/// While this is there, nothing is added to the tables of a project.
struct Hold<'a> {
    sink: &'a Sink,
    project: &'a str,
}

impl<'a> Hold<'a> {
    /// Waits until nothing is added.
    async fn new(sink: &'a Sink, project: &'a str) -> Self {
        sink.state.lock().project(project).holds += 1;
        let hold = Self { sink, project };
        drop(sink.writing.lock().await);
        hold
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.sink.state.lock();
            let known = state.project(self.project);
            known.holds = known.holds.saturating_sub(1);
        }
        self.sink.wake_live.notify_one();
        self.sink.wake_filling.notify_one();
    }
}

impl Sink {
    /// Returns what the server is, and what is missing there.
    pub async fn test(&self) -> Result<SinkTestReport, String> {
        let programs = self.programs();
        let projects: Vec<String> =
            programs.into_iter().map(|it| it.manifest.project_name.clone()).collect();
        super::test::test(&self.name, &self.settings, &projects).await
    }

    /// Refuses a project that the sink does not have.
    fn known(&self, project: &str) -> Result<(), String> {
        let state = self.state.lock();
        if state.projects.contains_key(project) {
            return Ok(());
        }
        let names: Vec<&str> = state.projects.keys().map(String::as_str).collect();
        let has = match names.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", names.join(", ")),
        };
        Err(format!("the sink {} has no project {project}: {has}", self.name))
    }

    /// Has the tables of a project filled again. What others made and cannot be kept is dropped. The order is in the
    /// database before it is answered: a service that is started again carries it out.
    pub async fn replace(&self, project: &str) -> Result<SinkProjectReport, String> {
        self.known(project)?;
        if self.program(project).is_none() {
            return Err(format!(
                "there is no project {project} any more, whose rows could be filled in: `orrery sink remove` \
                 removes its tables"
            ));
        }
        let url = address::server(&self.name, &self.settings)?;
        let connection = url.connect().await.map_err(|error| error.to_string())?;
        let ordered = self.writer.order_to_replace(&connection, project).await;
        ordered.map_err(|error| error.to_string())?;
        let report = {
            let mut state = self.state.lock();
            let known = state.project(project);
            known.is_to_replace = true;
            let reason = ORDERED.to_owned();
            if known.state != SinkProjectState::Filling {
                let blocked = std::mem::take(&mut known.blocked_by);
                known.set(SinkProjectState::Behind, Some(reason));
                known.blocked_by = blocked;
            }
            known.retry_at = None;
            known.report(project)
        };
        self.wake_filling.notify_one();
        Ok(report)
    }

    /// Compares the tables of a project with its log: numbers and digests of rows. No rows are added meanwhile.
    pub async fn check(&self, project: &str) -> Result<Vec<SinkCheckedTable>, String> {
        self.known(project)?;
        let schema = names::schema(&self.settings.schema, project)?;
        let url = address::server(&self.name, &self.settings)?;
        let connection = url.connect().await.map_err(|error| error.to_string())?;
        let (cursor, made, tables) = {
            let _hold = Hold::new(self, project).await;
            let cursor = self.writer.cursor(&connection, project).await;
            let cursor = cursor.map_err(|error| error.to_string())?;
            // Its tables of now have the rows of all entries up to the cursor.
            let program = self.program(project);
            let program =
                program.ok_or_else(|| format!("there is no project {project} any more"))?;
            let made = Made::new(&self.source, &program.manifest, &schema);
            let made = made.map_err(|error| error.to_string())?;
            let tables = check(&connection, &self.writer, &made.layout.project).await;
            (cursor, made, tables.map_err(|error| error.to_string())?)
        };
        let cursor = cursor.ok_or_else(|| format!("the tables of {project} are not filled yet"))?;
        let own = self.own_digests(&made, &cursor).await?;
        let mut checked = Vec::new();
        for table in tables {
            let expected = own.get(&table.target).copied().unwrap_or_default();
            let difference = table.difference().or_else(|| {
                (table.written != expected).then(|| differs(&table.name, table.written, expected))
            });
            let rows = table.found.map(|found| found.rows);
            let (name, expected) = (table.name, expected.rows);
            checked.push(SinkCheckedTable { name, rows, expected, difference });
        }
        Ok(checked)
    }

    /// Adds up the digests of the rows of a project's log up to a cursor.
    async fn own_digests(
        &self,
        made: &Made,
        cursor: &Cursor,
    ) -> Result<std::collections::BTreeMap<String, RowsDigest>, String> {
        if generation_of(&made.manifest) != Some(cursor.generation)
            || cursor.writer != self.writer.id
        {
            return Err(format!(
                "the rows of {} are about to be filled in again: check it afterwards",
                made.manifest.project_name
            ));
        }
        let (source, made, number) = (self.source.clone(), made.clone(), cursor.position.number);
        let stop = self.stop.clone();
        let own = tokio::task::spawn_blocking(move || {
            table_digests(&source, &made, number, &|| *stop.borrow())
        });
        let own = own.await.map_err(|error| error.to_string())?;
        own.map_err(|error| error.to_string())
    }

    /// Removes a project that the sink does not have any more, or that was deleted.
    pub async fn remove(&self, removal: &SinkRemoval) -> Result<(), String> {
        let project = &*removal.project;
        self.known(project)?;
        if self.program(project).is_some() {
            return Err(format!(
                "the sink {} has the project {project}: take it out of sinks.{}.projects and start the service again, \
                 or delete the project",
                self.name, self.name
            ));
        }
        let url = address::server(&self.name, &self.settings)?;
        let connection = url.connect().await.map_err(|error| error.to_string())?;
        let removed = {
            let _hold = Hold::new(self, project).await;
            match removal.drop {
                true => remove(&connection, &self.writer, project).await,
                false => release(&connection, &self.writer, project).await,
            }
        };
        removed.map_err(|error| error.to_string())?;
        self.state.lock().projects.remove(project);
        tracing::info!(sink = self.name, project, dropped = removal.drop, "removed");
        Ok(())
    }
}

/// Says that a table's rows are not those of the log.
fn differs(name: &str, written: RowsDigest, expected: RowsDigest) -> String {
    let what = match written.rows == expected.rows {
        true => format!("rows of {name} are not those of the project's log"),
        false => {
            format!("{name} has {} rows, and the project's log {}", written.rows, expected.rows)
        }
    };
    format!("{what}: `orrery sink replace` fills it again")
}
