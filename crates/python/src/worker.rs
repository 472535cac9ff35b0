//! One worker: a process that has imported the registered modules and works on one batch at a time.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, interval, sleep_until};
use vitrina_core::{Error, Result};

use crate::fault::{self, Told};
use crate::frames::{self, Frame};
use crate::output::Output;
use crate::process::Process;
use crate::registry::{PythonTask, Registry};
use crate::sdk::Sdk;
use crate::settings::PythonSettings;

/// Importing polars or pandas takes a second or two, and more on a machine that is busy.
const START: Duration = Duration::from_secs(60);
/// How often the memory of a working function is looked at.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    output: Output,
    pub(crate) registry: Registry,
    /// Batches so far.
    pub(crate) served: u32,
    /// Nothing is under way in it: it may serve someone else.
    pub(crate) is_free: bool,
}

/// What a call may take.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    deadline: Duration,
    memory: u64,
}

impl Worker {
    pub(crate) async fn start(settings: &PythonSettings, sdk: &Sdk) -> Result<Self> {
        let process = Process::start(settings, sdk)?;
        let mut worker = Self {
            process,
            output: Output::default(),
            registry: Registry::default(),
            served: 0,
            is_free: true,
        };
        let bounds = Bounds { deadline: START, memory: settings.memory_limit };
        let mut frame = worker.answer("start", &[], bounds).await?;
        if let Some(told) = told(&mut frame.header) {
            return Err(told?.at_start());
        }
        let tasks: Vec<PythonTask> = serde_json::from_value(frame.header["ready"]["tasks"].take())
            .map_err(|error| Error::bug("python.protocol", format!("the worker tells no tasks: {error}")))?;
        worker.registry = Registry { tasks };
        Ok(worker)
    }

    /// Has a function work; of several calls only the last is answered. Whatever goes wrong in it is an error here, and the end of this worker where it may be harmed.
    pub(crate) async fn call(
        &mut self,
        task: &str,
        calls: &[(Value, Vec<u8>)],
        settings: &PythonSettings,
    ) -> Result<Frame> {
        self.served += 1;
        let bounds = Bounds { deadline: settings.deadline, memory: settings.memory_limit };
        let mut frame = self.answer(task, calls, bounds).await?;
        match told(&mut frame.header) {
            Some(told) => Err(told?.into_error(task)),
            None => Ok(frame),
        }
    }

    /// What it holds in memory.
    pub(crate) fn memory(&self) -> u64 {
        self.process.meter.read()
    }

    async fn answer(&mut self, task: &str, calls: &[(Value, Vec<u8>)], bounds: Bounds) -> Result<Frame> {
        self.is_free = false;
        let error = match self.raced(task, calls, bounds).await {
            Ok(Some(frame)) => {
                self.output.drain_all(&self.process.printed);
                self.is_free = true;
                return Ok(frame);
            }
            Ok(None) => fault::crashed(task, self.process.ended().await),
            Err(error) => error,
        };
        self.process.kill().await;
        self.output.drain_all(&self.process.printed);
        Err(error)
    }

    /// `None` if the worker has ended.
    async fn raced(
        &mut self,
        task: &str,
        calls: &[(Value, Vec<u8>)],
        bounds: Bounds,
    ) -> Result<Option<Frame>> {
        let Process { to, from, printed, meter, .. } = &mut self.process;
        let exchange = async {
            for (header, body) in calls {
                if frames::send(to, header, body).await.is_err() {
                    return Ok(None);
                }
            }
            frames::receive(from, bounds.memory).await
        };
        tokio::pin!(exchange);
        let (deadline, mut look) = (Instant::now() + bounds.deadline, interval(LOOK));
        loop {
            tokio::select! {
                biased;
                frame = &mut exchange => return frame,
                () = sleep_until(deadline) => return Err(fault::too_slow(task, bounds.deadline)),
                _ = look.tick() => {
                    let held = meter.read();
                    if held > bounds.memory {
                        return Err(fault::too_much_memory(task, held, bounds.memory));
                    }
                }
                () = self.output.printed(printed) => {
                    self.output.drain(printed);
                    // What prints faster than it is read is always readable: without this no clock would go on, and no
                    // deadline come.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

fn told(header: &mut Value) -> Option<Result<Told>> {
    let error = header.get_mut("error")?.take();
    Some(serde_json::from_value(error).map_err(|error| Error::defect("python.protocol", &error)))
}
