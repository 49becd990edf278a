//! What a sink does beside adding rows: it notes which projects have gone, says that the service is there, drops what was
//! begun for projects that have gone, and looks whether somebody removed rows.

use std::time::{Duration, Instant};

use orrery_postgres::{Cursor, SinkError, drop_begun, watch};
use orrery_programs::CopiedProgram;

use super::live::Session;
use super::report::SinkProjectState;

/// Time between two signs of life, and two looks at the tables.
const TOUCH: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// Notes projects that are not there any more, or not yet.
    pub async fn tell_absent(&self, programs: &[CopiedProgram]) -> Result<(), String> {
        let is_there =
            |name: &str| programs.iter().any(|program| program.manifest.project_name == name);
        let is_awaited = |name: &str| {
            let mut named = self.sink.settings.named().into_iter().flatten();
            let is_program =
                |it: &CopiedProgram| it.manifest.project_name.eq_ignore_ascii_case(name);
            named.any(|it| it == name) && !programs.iter().any(is_program)
        };
        let mut told: Vec<(String, SinkProjectState)> = Vec::new();
        {
            let mut state = self.sink.state.lock();
            for name in self.sink.settings.named().into_iter().flatten() {
                if is_awaited(name) {
                    state.project(name);
                }
            }
            state
                .projects
                .retain(|name, it| it.cursor.is_some() || is_there(name) || is_awaited(name));
            for (name, project) in state.projects.iter_mut().filter(|(name, _)| !is_there(name)) {
                let now = match &project.cursor {
                    None => SinkProjectState::Waiting,
                    Some(_) if self.sink.settings.has(name) => SinkProjectState::Deleted,
                    Some(_) => SinkProjectState::Left,
                };
                let is_told =
                    |it: &Cursor| it.state == now.name() || it.writer != self.sink.writer.id;
                if project.cursor.as_ref().is_some_and(|cursor| !is_told(cursor)) {
                    told.push((name.clone(), now));
                }
                if project.state != now {
                    let reason =
                        format!("there is no project {name} yet: its rows come once there is one");
                    project.set(now, project.cursor.is_none().then_some(reason));
                }
            }
        }
        for (name, now) in told {
            let set = self.sink.writer.set_state(&self.connection, &name, now.name()).await;
            set.map_err(|error| error.to_string())?;
            if let Some(cursor) = &mut self.sink.state.lock().project(&name).cursor {
                now.name().clone_into(&mut cursor.state);
            }
        }
        Ok(())
    }

    /// Says now and then that this service is there, and looks whether somebody removed rows.
    pub async fn touch(&mut self, programs: &[CopiedProgram]) -> Result<(), String> {
        if self.touched.is_some_and(|at| at.elapsed() < TOUCH) {
            return Ok(());
        }
        let sink = self.sink;
        let told = sink.writer.touch(&self.connection).await;
        match told {
            Ok(_) => self.drop_begun().await?,
            // Nothing was ever written.
            Err(SinkError::Refused(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        for program in programs {
            let Some((made, _)) = self.made.get(&program.manifest.id) else { continue };
            let is_live = {
                let mut state = sink.state.lock();
                let known = state.project(&program.manifest.project_name);
                !known.is_filled() && known.holds == 0
            };
            if is_live {
                self.watch(&made.layout.project).await?;
            }
        }
        self.touched = Some(Instant::now());
        Ok(())
    }

    /// Drops tables that were begun to be filled for projects that are not there any more.
    async fn drop_begun(&self) -> Result<(), String> {
        let sink = self.sink;
        // Asked after it is known what was begun: a project may be new.
        let is_there = |name: &str| sink.program(name).is_some();
        match drop_begun(&self.connection, &sink.writer, is_there).await {
            Ok(()) => Ok(()),
            Err(SinkError::Lost(reason)) => Err(reason),
            Err(error) => {
                tracing::debug!(sink = sink.name, "what was begun is dropped later: {error}");
                Ok(())
            }
        }
    }

    /// Looks at the tables of a project.
    pub async fn watch(&self, project: &orrery_postgres::Project) -> Result<(), String> {
        match watch(&self.connection, &self.sink.writer, project).await {
            Ok(tables) => {
                let mut state = self.sink.state.lock();
                let known = state.project(&project.name);
                let before = known.loss();
                known.tables = tables;
                if let Some(loss) = known.loss().filter(|loss| before.as_ref() != Some(loss)) {
                    tracing::warn!(sink = self.sink.name, project = project.name, "{loss}");
                }
                Ok(())
            }
            // The next rows say what is wrong.
            Err(SinkError::Refused(_) | SinkError::Busy(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}
