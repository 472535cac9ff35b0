//! `vitrina runner`: the data plane as a process of its own.

use anyhow::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::logging;
use crate::services::{Services, start_python};
use crate::shutdown::Shutdown;

pub(crate) const EXAMPLES: &str = "\
Examples:
  vitrina runner
  VITRINA_RUNNER_NAME=runner-2 VITRINA_RUNNER_MAX_CONCURRENT=8 vitrina runner   beside others";

pub(crate) async fn run(context: &Context) -> Result<Exit> {
    let settings = context.settings()?;
    let telling = logging::start(&settings.log);
    let shutdown = Shutdown::on_signals()?;
    let mut services = Services::new(shutdown.token.clone(), telling.run_log.clone());
    services.start_runner(&settings, start_python(&settings).await?).await?;
    let exit = services.run().await;
    telling.end();
    exit
}
