//! `vitrina serve`: the control plane as a process of its own.

use anyhow::Result;

use crate::config::Flag;
use crate::context::Context;
use crate::exit::Exit;
use crate::logging;
use crate::services::Services;
use crate::shutdown::Shutdown;

const EXAMPLES: &str = "\
Examples:
  vitrina serve                         runners are processes of their own then
  vitrina serve --listen 0.0.0.0:8080   for others, with VITRINA_ADMIN_TOKEN set";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// IP address and port to listen on, instead of api.listen
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

impl Args {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let listen = |value| Flag { key: "api.listen".to_owned(), name: "--listen", value };
        self.listen.clone().map(listen).into_iter().collect()
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let settings = context.config(args.flags())?.settings;
    let telling = logging::start(&settings.log);
    let shutdown = Shutdown::on_signals()?;
    let mut services = Services::new(shutdown.token.clone(), telling.run_log.clone());
    services.start_api(&settings).await?;
    let exit = services.run().await;
    telling.end();
    exit
}
