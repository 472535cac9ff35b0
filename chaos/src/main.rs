//! `make chaos`: the storm on the binary as it is, then on binaries with one bug each, which it must find.
//! SECONDS, KILLS, ZOMBIES, RESTARTS and SEED choose the storm, BUGS which bugs (names, `none`, or all).
#![allow(clippy::print_stdout)] // its summary is its output

use anyhow::Result;
use vitrina_chaos::report::Report;
use vitrina_chaos::{Weather, storm};

#[tokio::main]
async fn main() -> Result<()> {
    // Ended from outside, it still takes its processes with it.
    tokio::select! {
        done = run() => done,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    }
}

async fn run() -> Result<()> {
    let seconds: u32 = std::env::var("CHAOS_SECONDS").unwrap_or_else(|_| "30".into()).parse()?;
    let weather = Weather::of(std::env::var("CHAOS_SEED").unwrap_or_else(|_| "1".into()).parse()?, seconds);
    let folder = tempfile::Builder::new().prefix("vitrina-chaos-").tempdir()?.keep();
    let stormed = storm(std::env::var("CHAOS_BINARY")?.as_ref(), &folder, &weather).await?;
    println!("{}", stormed.summary());
    let report = Report { storm: Some(stormed), bugs: Vec::new() };
    report.write("target/chaos.json".as_ref())?;
    Ok(())
}
