//! What can be chosen before a recorder is made, checked when it is.
//!
//! # Invariant
//! Bounds in `Settings` are finite, ascending and at most `MAX_BOUNDS`; quantiles are from 0 to 1, ascending.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::histogram::{MAX_BOUNDS, Shape};
use crate::recorder::{Handle, Recorder};
use crate::text;

const QUANTILES: [f64; 7] = [0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0];
const WINDOW: Duration = Duration::from_secs(60);

/// The shapes that histograms are rendered in: see [`Shape`].
#[derive(Debug)]
pub(crate) struct Settings {
    usual: Shape,
    /// By name, as it is written.
    special: HashMap<String, Shape>,
}

impl Settings {
    /// Returns the shape of histograms of this name, as it is written.
    pub(crate) fn shape(&self, name: &str) -> Shape {
        self.special.get(name).unwrap_or(&self.usual).clone()
    }
}

impl Default for Settings {
    fn default() -> Self {
        let usual = Shape::Quantiles(Arc::new(QUANTILES), WINDOW);
        Settings { usual, special: HashMap::new() }
    }
}

/// The reason why there is no recorder.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The program has a recorder already: `metrics` takes one, once.
    AlreadyInstalled,
    /// A quantile that is not from 0 to 1.
    Quantile(f64),
    /// Bounds of buckets that do not rise, or that are not finite.
    Bounds(Vec<f64>),
    /// More bounds of buckets than the 63 that a histogram has room for.
    TooManyBounds(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AlreadyInstalled => f.write_str(
                "this program has installed a metrics recorder before; install one, once, in `main`",
            ),
            Error::Quantile(q) => {
                write!(f, "{q} is no quantile: give numbers from 0 to 1, such as 0.99")
            }
            Error::Bounds(bounds) => {
                write!(f, "{bounds:?} are no bounds of buckets: give finite numbers in rising order")
            }
            Error::TooManyBounds(given) => {
                write!(f, "{given} bounds of buckets are too many: give at most {MAX_BOUNDS}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// What a recorder shall be like. Made by [`Recorder::builder`].
///
/// ```
/// use std::time::Duration;
///
/// let recorder = corelocal_metrics::Recorder::builder()
///     .quantiles([0.5, 0.99])
///     .window(Duration::from_secs(300))
///     .buckets_for("request_seconds", [0.001, 0.01, 0.1, 1.0])
///     .build()?;
/// # Ok::<(), corelocal_metrics::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    quantiles: Vec<f64>,
    window: Duration,
    buckets: Option<Vec<f64>>,
    special: Vec<(String, Vec<f64>)>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let (quantiles, special) = (QUANTILES.to_vec(), Vec::new());
        Builder { quantiles, window: WINDOW, buckets: None, special }
    }

    /// Sets the quantiles that histograms without buckets are rendered as: a Prometheus summary. 0 is the
    /// smallest value, 1 the largest.
    ///
    /// Usually 0, 0.5, 0.9, 0.95, 0.99, 0.999 and 1. A quantile is at most 1/64 (1.6 %) farther from zero
    /// than the value it is, and never nearer.
    #[must_use]
    pub fn quantiles(mut self, quantiles: impl IntoIterator<Item = f64>) -> Self {
        self.quantiles = quantiles.into_iter().collect();
        self
    }

    /// Sets the time that quantiles cover: at least so long, and less than twice that and the time between two
    /// scrapes. Scraped more seldom than once in that time, they cover the time since the scrape before. Usually one
    /// minute. `Duration::MAX` is for ever.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Renders all histograms as Prometheus histograms with buckets up to and including these bounds, and
    /// one for the rest. At most 63, finite and rising. What is in a bucket is exact.
    #[must_use]
    pub fn buckets(mut self, bounds: impl IntoIterator<Item = f64>) -> Self {
        self.buckets = Some(bounds.into_iter().collect());
        self
    }

    /// Does what [`buckets`](Builder::buckets) does, for the histograms of one name.
    #[must_use]
    pub fn buckets_for(mut self, name: &str, bounds: impl IntoIterator<Item = f64>) -> Self {
        self.special.push((text::metric_name(name), bounds.into_iter().collect()));
        self
    }

    /// Returns a recorder.
    ///
    /// # Errors
    /// [`Error::Quantile`], [`Error::Bounds`] and [`Error::TooManyBounds`], where what was chosen is none.
    pub fn build(self) -> Result<Recorder, Error> {
        let usual = match self.buckets {
            Some(bounds) => buckets(bounds)?,
            None => quantiles(self.quantiles, self.window)?,
        };
        let special = self.special.into_iter().map(|(name, bounds)| Ok((name, buckets(bounds)?)));
        Ok(Recorder::new(Settings { usual, special: special.collect::<Result<_, _>>()? }))
    }

    /// Returns a recorder that the whole program uses from now on. What was recorded before is lost.
    ///
    /// # Errors
    /// As [`build`](Builder::build), and [`Error::AlreadyInstalled`].
    pub fn install(self) -> Result<Handle, Error> {
        let recorder = self.build()?;
        let handle = recorder.handle();
        match metrics::set_global_recorder(recorder) {
            Ok(()) => Ok(handle),
            Err(_) => Err(Error::AlreadyInstalled),
        }
    }
}

/// As [`Recorder::builder`].
impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

fn quantiles(mut quantiles: Vec<f64>, window: Duration) -> Result<Shape, Error> {
    if let Some(&wrong) = quantiles.iter().find(|q| !(0.0..=1.0).contains(*q)) {
        return Err(Error::Quantile(wrong));
    }
    // -0 is 0.
    quantiles.iter_mut().for_each(|q| *q += 0.0);
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    Ok(Shape::Quantiles(quantiles.into(), window))
}

fn buckets(mut bounds: Vec<f64>) -> Result<Shape, Error> {
    // The bucket for the rest is there anyway.
    if bounds.last() == Some(&f64::INFINITY) {
        bounds.pop();
    }
    let rise = bounds.windows(2).all(|pair| pair[0] < pair[1]);
    if !rise || !bounds.iter().all(|bound| bound.is_finite()) {
        return Err(Error::Bounds(bounds));
    }
    if bounds.len() > MAX_BOUNDS {
        return Err(Error::TooManyBounds(bounds.len()));
    }
    Ok(Shape::Buckets(bounds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let build = |builder: Builder| builder.build().map(drop);
        let builder = Recorder::builder;
        assert_eq!(build(builder()), Ok(()));
        assert_eq!(build(builder().quantiles([])), Ok(()));
        assert_eq!(build(builder().quantiles([1.0, 0.0, 1.0])), Ok(()));
        assert_eq!(build(builder().quantiles([0.5, 1.5])), Err(Error::Quantile(1.5)));
        assert!(matches!(build(builder().quantiles([f64::NAN])), Err(Error::Quantile(_))));
        assert_eq!(build(builder().buckets([])), Ok(()));
        assert_eq!(build(builder().buckets([1.0, 2.0, f64::INFINITY])), Ok(()));
        assert_eq!(build(builder().buckets([2.0, 1.0])), Err(Error::Bounds(vec![2.0, 1.0])));
        assert_eq!(build(builder().buckets([1.0, 1.0])), Err(Error::Bounds(vec![1.0, 1.0])));
        assert!(matches!(build(builder().buckets([f64::NAN])), Err(Error::Bounds(_))));
        let many = |n: usize| (0..n).map(|n| n as f64);
        assert_eq!(build(builder().buckets_for("x", many(63))), Ok(()));
        assert_eq!(build(builder().buckets_for("x", many(64))), Err(Error::TooManyBounds(64)));
    }

    #[test]
    fn messages_say_what_to_do() {
        let said = |error: Error| error.to_string();
        assert!(said(Error::AlreadyInstalled).contains("once"));
        assert!(said(Error::Quantile(7.0)).starts_with("7 is no quantile"));
        assert!(said(Error::Bounds(vec![2.0, 1.0])).contains("rising"));
        assert!(said(Error::TooManyBounds(64)).contains("at most 63"));
    }
}
