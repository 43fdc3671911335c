//! Sends heap profiles to an OpenTelemetry collector, by OTLP over HTTP.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use corelocal_support::output::{one_line, remark};
use flate2::{Compression, write::GzEncoder};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use prost::Message as _;
use reqwest::Url;
use reqwest::blocking::Client;

use super::file::Heap;
use super::otlp;
use super::sites::Told;

/// The path at which a collector takes profiles, for addresses without one.
const PATH: &str = "/v1development/profiles";
const LIMIT: Duration = Duration::from_secs(10);
/// The bytes of an answer that are shown.
const MOST: usize = 200;

/// Sends the profiles. `is_here` if they are of this machine.
///
/// # Errors
/// The address is wrong; the collector does not answer, or refuses.
pub fn send(address: &str, processes: &[(Heap, Told)], is_here: bool) -> anyhow::Result<()> {
    let url = parse(address)?;
    let service = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().filter(|_| is_here);
    let request = otlp::request(processes, service.as_deref(), host.as_deref().map(str::trim));
    let mut body = GzEncoder::new(Vec::new(), Compression::fast());
    body.write_all(&request.encode_to_vec()).context("cannot compress")?;
    let body = body.finish().context("cannot compress")?;
    let answer = Client::builder()
        .timeout(LIMIT)
        .build()?
        .post(url.clone())
        .header("Content-Type", "application/x-protobuf")
        .header("Content-Encoding", "gzip")
        .body(body)
        .send()
        .with_context(|| format!("no answer from a collector at {url}; is it running there?"))?;
    let status = answer.status();
    let body = answer.bytes().context("the collector's answer was cut off")?;
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body[..body.len().min(MOST)]).into_owned();
        let hint = match status.as_u16() {
            404 => {
                "; it needs a receiver for profiles, which collectors have behind a feature gate"
            }
            429 | 502..=504 => "; try again later",
            _ => "",
        };
        bail!("the collector at {url} answered {status}: {}{hint}", one_line(text));
    }
    let refused = ExportProfilesServiceResponse::decode(body).unwrap_or_default().partial_success;
    match refused {
        Some(refused) if refused.rejected_profiles > 0 => bail!(
            "the collector at {url} refused {} profiles: {}",
            refused.rejected_profiles,
            one_line(refused.error_message)
        ),
        _ => {
            let samples: usize = processes.iter().map(|(_, told)| told.samples).sum();
            remark(format_args!("sent {samples} samples to {url}\n"));
            Ok(())
        }
    }
}

fn parse(address: &str) -> anyhow::Result<Url> {
    let mut url = Url::parse(address)
        .with_context(|| format!("{address} is no address; give one as http://localhost:4318"))?;
    if url.path() == "/" {
        url.set_path(PATH);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (given, is) in [
            ("http://localhost:4318", "http://localhost:4318/v1development/profiles"),
            ("http://localhost:4318/", "http://localhost:4318/v1development/profiles"),
            ("http://collector/other/path", "http://collector/other/path"),
        ] {
            assert_eq!(parse(given).expect("an address").as_str(), is);
        }
        assert!(parse("http://:1").is_err());
    }
}
