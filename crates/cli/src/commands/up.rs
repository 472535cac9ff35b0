//! `vitrina up`: migrations, API and runner in one process, for one machine.

use anyhow::Result;

use crate::context::{Context, connect};
use crate::exit::Exit;
use crate::logging;
use crate::services::{Services, start_python};
use crate::shutdown::Shutdown;

use super::migrate::bring_up_to_date;
pub(crate) use super::serve::Args;

pub(crate) const EXAMPLES: &str = "\
Examples:
  vitrina up   everything in one process
  vitrina up --listen 127.0.0.1:9000";

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let settings = context.config(args.flags())?.settings;
    let telling = logging::start(&settings.log);
    let shutdown = Shutdown::on_signals()?;
    let store = connect(&settings, "vitrina-migrate", 2).await?;
    bring_up_to_date(&store).await?;
    store.close().await;
    let mut services = Services::new(shutdown.token.clone(), telling.run_log.clone());
    services.start_api(&settings).await?;
    services.start_runner(&settings, start_python(&settings).await?).await?;
    let exit = services.run().await;
    telling.end();
    exit
}
