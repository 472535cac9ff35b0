//! Tests of functions, by the interpreter of the configuration and with the SDK that this binary carries: they see what a
//! runner's workers would see.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result};
use tokio::process::Command;
use vitrina_python::Sdk;

use crate::config::Settings;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::shell_word;

pub(super) const EXAMPLES: &str = "\
Examples:
  vitrina transform test                                     those of python.path, or of functions/
  vitrina transform test functions/tests/film_slug_test.py
  vitrina transform test functions -- -k slug                what follows -- is for pytest";

/// As `transform new` calls it.
const FOLDER: &str = "functions";
/// Without the folder it is started in, which workers do not see either.
const PYTEST: &str = "import sys; sys.path[:] = [folder for folder in sys.path if folder]; import pytest; sys.exit(pytest.main(sys.argv[1:]))";
/// pytest has found no test.
const NONE_FOUND: i32 = 5;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder with functions and their tests, or a test file
    path: Option<PathBuf>,
    /// For pytest
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let settings = context.settings()?;
    let paths = match &args.path {
        Some(path) => vec![path.clone()],
        None => usual_places(&settings),
    };
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        let hint = "`vitrina transform new NAME` writes a function and its test";
        return Err(Exit::Usage.fault(format!("there is no {}\nhint: {hint}", missing.display())));
    }
    let sdk = Sdk::lay_out()?;
    let path = python_path(&sdk, &paths, &settings)?;
    let variables = settings.python.iter().flat_map(|python| python.variables.iter().map(String::as_str));
    let variables: Vec<&str> = vitrina_python::VARIABLES.into_iter().chain(variables).collect();
    let python = |program: &str| {
        let mut command = Command::new(&settings.interpreter);
        command.env_clear().envs(variables.iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.args(["-c", program]).env("PYTHONPATH", &path).env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    has_pytest(python("import pytest"), &settings.interpreter).await?;
    let mut tests = python(PYTEST);
    let ended = tests.args(&paths).args(&args.options).status().await.context("cannot run pytest")?;
    match ended.code() {
        Some(0) => Ok(Exit::Done),
        Some(NONE_FOUND) => Err(Exit::Usage.fault(
            "there are no tests\nhint: pytest looks for functions test_… in files *_test.py and test_*.py",
        )),
        _ => Ok(Exit::Failed),
    }
}

fn usual_places(settings: &Settings) -> Vec<PathBuf> {
    match &settings.python {
        Some(python) if !python.path.is_empty() => python.path.clone(),
        _ => vec![PathBuf::from(FOLDER)],
    }
}

/// The SDK first, as a runner has it; then where functions are: beside their tests, or a folder above.
fn python_path(sdk: &Sdk, paths: &[PathBuf], settings: &Settings) -> Result<OsString> {
    let mut folders = vec![sdk.path().to_owned()];
    folders.extend(settings.python.iter().flat_map(|python| python.path.clone()));
    for path in paths {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let above = path.ancestors().skip(usize::from(path.is_file())).take(2);
        folders.extend(above.map(Path::to_owned));
    }
    env::join_paths(folders).context("a folder of functions has a name that no path can hold")
}

async fn has_pytest(mut ask: Command, interpreter: &Path) -> Result<()> {
    let shown = shell_word(&interpreter.to_string_lossy());
    let asked = ask.stdout(Stdio::null()).stderr(Stdio::null()).status().await;
    match asked {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Exit::Refused.fault(format!(
            "{shown} has no pytest\nhint: `{shown} -m pip install pytest`, or set python.interpreter"
        ))),
        Err(error) => Err(Exit::Refused.fault(format!(
            "cannot start {shown}: {error}\nhint: python.interpreter names the Python to use"
        ))),
    }
}
