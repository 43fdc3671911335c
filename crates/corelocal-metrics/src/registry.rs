//! Which series there are: from a metric's name and labels to what it is counted with.
//!
//! # Data's way
//! A key that was seen before → `keys` → its series. A new one → name and labels as they will be written →
//! the family of that name → the series of those labels, made if there is none. Keys that are written alike
//! (`a.b` and `a_b`) have one series, for no two samples of an exposition may be.
//!
//! # Invariants
//! 1. Series are never removed, and keys never change theirs: handles stay valid for ever.
//! 2. No two families claim the same name of a sample.
//! 3. Locks are taken in the order group, names. Nothing panics while one is held.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use metrics::{Key, SharedString, Unit};

use crate::text;

/// The kind of a family in the text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Summary,
    Histogram,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        }
    }

    /// Returns the label that samples of this kind have of their own.
    fn needed(self) -> Option<&'static str> {
        match self {
            Kind::Counter | Kind::Gauge => None,
            Kind::Summary => Some("quantile"),
            Kind::Histogram => Some("le"),
        }
    }

    /// Returns what follows the family's name in those of its samples. A family claims its own name too.
    fn suffixes(self) -> &'static [&'static str] {
        match self {
            Kind::Counter | Kind::Gauge => &[""],
            Kind::Summary => &["", "_sum", "_count"],
            Kind::Histogram => &["", "_bucket", "_sum", "_count"],
        }
    }
}

/// The names of samples that are claimed.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashSet<String>>);

impl Names {
    /// `name` for a family, or what is free and comes closest to it.
    fn claim(&self, name: &str, kind: Kind) -> Arc<str> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let claims =
            |name: &str| kind.suffixes().iter().map(|end| format!("{name}{end}")).collect();
        let mut shown = name.to_owned();
        let mut claimed: Vec<String> = claims(&shown);
        if claimed.iter().any(|name| taken.contains(name)) {
            shown = format!("{name}_{}", kind.as_str());
            claimed = claims(&shown);
        }
        while claimed.iter().any(|name| taken.contains(name)) {
            shown.push('_');
            claimed = claims(&shown);
        }
        taken.extend(claimed);
        shown.into()
    }
}

/// The series of one kind of the crate `metrics`.
#[derive(Debug)]
pub(crate) struct Group<S>(RwLock<Inner<S>>);

#[derive(Debug)]
struct Inner<S> {
    keys: HashMap<Key, Arc<S>>,
    /// By the name that was asked for.
    families: BTreeMap<String, Family<S>>,
    /// Likewise; some come before their families.
    help: HashMap<String, Arc<str>>,
}

/// The series of one name.
#[derive(Debug)]
pub(crate) struct Family<S> {
    /// The name it has.
    pub(crate) name: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) help: Option<Arc<str>>,
    /// By their labels, as they are written.
    pub(crate) series: BTreeMap<Arc<str>, Arc<S>>,
}

impl<S> Group<S> {
    pub(crate) fn new() -> Self {
        let (keys, families, help) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Group(RwLock::new(Inner { keys, families, help }))
    }

    /// Returns what a key is counted with. `kind` and `make` are given the name that is asked for.
    pub(crate) fn get(
        &self,
        key: &Key,
        names: &Names,
        kind: impl Fn(&str) -> Kind,
        make: impl Fn(&str) -> S,
    ) -> Arc<S> {
        if let Some(known) = self.read().keys.get(key) {
            return known.clone();
        }
        let name = text::metric_name(key.name());
        let kind = kind(&name);
        let labels = text::labels(key.labels(), kind.needed());
        let mut inner = self.write();
        let Inner { keys, families, .. } = &mut *inner;
        let family = families.entry(name.clone()).or_insert_with(|| {
            let shown = names.claim(&name, kind);
            Family { name: shown, kind, help: None, series: BTreeMap::new() }
        });
        let series = family.series.entry(labels.into()).or_insert_with(|| Arc::new(make(&name)));
        keys.insert(key.to_retained(), series.clone());
        series.clone()
    }

    /// Keeps the description of a name; the last one counts.
    pub(crate) fn describe(&self, name: &str, unit: Option<Unit>, description: &SharedString) {
        let help = text::help(unit, description).into();
        self.write().help.insert(text::metric_name(name), help);
    }

    /// Returns all families, sorted, copied so that other threads need not wait for the reader. Linear in the series.
    pub(crate) fn families(&self) -> Vec<Family<S>> {
        let inner = self.read();
        let family = |(name, family): (&String, &Family<S>)| Family {
            name: family.name.clone(),
            kind: family.kind,
            help: inner.help.get(name).cloned(),
            series: family.series.clone(),
        };
        inner.families.iter().map(family).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner<S>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner<S>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_written_alike_share_a_series() {
        let (group, names) = (Group::<()>::new(), Names::default());
        let get = |key: &Key| group.get(key, &names, |_| Kind::Counter, |_| ());
        let dotted = get(&Key::from_parts("a.b", &[("x", "1"), ("y", "2")][..]));
        let other = get(&Key::from_parts("a_b", &[("y", "2"), ("x", "1")][..]));
        assert!(Arc::ptr_eq(&dotted, &other));
        let third = get(&Key::from_parts("a_b", &[("y", "2")][..]));
        assert!(!Arc::ptr_eq(&dotted, &third));
        let families = group.families();
        assert_eq!((families.len(), families[0].series.len()), (1, 2));
    }

    #[test]
    fn names_are_claimed_once() {
        let names = Names::default();
        let claim = |name, kind| names.claim(name, kind).to_string();
        assert_eq!(claim("x", Kind::Counter), "x");
        assert_eq!(claim("x", Kind::Gauge), "x_gauge");
        assert_eq!(claim("y_count", Kind::Counter), "y_count");
        assert_eq!(claim("y", Kind::Summary), "y_summary");
        assert_eq!(claim("y_summary_sum", Kind::Gauge), "y_summary_sum_gauge");
        assert_eq!(claim("x_gauge", Kind::Counter), "x_gauge_counter");
        assert_eq!(claim("x_gauge_counter", Kind::Counter), "x_gauge_counter_counter");
        assert_eq!(claim("z", Kind::Histogram), "z");
        assert_eq!(claim("z_bucket", Kind::Gauge), "z_bucket_gauge");
    }
}
