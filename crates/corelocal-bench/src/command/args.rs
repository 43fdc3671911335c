//! The arguments of `report` and `bench`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Short rounds: about half a minute in total
    #[arg(long)]
    pub quick: bool,
    /// Measure for so many minutes at most; shorter rounds give wider spreads, and tables that do not fit are left out
    #[arg(long, value_name = "N", conflicts_with = "quick", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub minutes: Option<u32>,
    /// Only these tables, with commas between them; `bench --list` shows their names
    #[arg(long, value_name = "TABLES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// The file for the page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub html: PathBuf,
    /// The file for the figures
    #[arg(long, value_name = "FILE", default_value = "report.json")]
    pub json: PathBuf,
    /// Compare with an older report.json: show what changed and what is noise
    #[arg(long, value_name = "OLD.json")]
    pub compare: Option<PathBuf>,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// List the tables
    #[arg(long, conflicts_with_all = ["names", "quick", "long", "json"])]
    pub list: bool,
    /// Tables to measure; --list shows their names
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub names: Vec<String>,
    /// Short rounds
    #[arg(long)]
    pub quick: bool,
    /// Rounds of a second where threads contend: how fair locks are (minutes for each table)
    #[arg(long, conflicts_with = "quick")]
    pub long: bool,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Compare with an older report.json: show what changed and what is noise
    #[arg(long, value_name = "OLD.json")]
    pub compare: Option<PathBuf>,
}
