//! The machine's stamp in words, one field to a line: what every output prints, and what decides
//! whether two reports were taken on the same machine.

use corelocal_support::schema::Machine;
use corelocal_support::units::size;

/// Measured clock rates that differ by less than this share are the same clock.
const TSC_TOLERANCE: f64 = 0.01;

/// Returns the known fields of the stamp as (name, value), without the paths.
pub fn fields(machine: &Machine) -> Vec<(&'static str, String)> {
    let cpus = format!(
        "{} allowed, {} online, {} possible",
        machine.cpus_allowed, machine.cpus_online, machine.cpus_possible
    );
    let memory = match machine.memory_mib {
        0 => String::new(),
        mib => size(mib.saturating_mul(1 << 20)),
    };
    let mut fields = vec![
        ("processor", machine.cpu_model.clone()),
        ("cpus", cpus),
        ("NUMA nodes", machine.numa_nodes.to_string()),
        ("memory", memory),
        ("kernel", machine.kernel.clone()),
        ("libc", machine.libc.clone()),
        ("hypervisor", machine.hypervisor.clone()),
        ("clock source", machine.clocksource.clone()),
        ("TSC", machine.tsc_mhz.map(|mhz| format!("{mhz:.0} MHz")).unwrap_or_default()),
    ];
    fields.retain(|(_, value)| !value.is_empty());
    fields
}

/// A field of the stamp that differs.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// The field's name as in [`fields`], or the path's name.
    pub field: String,
    /// The setting's value in the older report; `not known` if it has none.
    pub old: String,
    /// The setting's value in the newer report, likewise.
    pub new: String,
}

/// Returns every field and path that is not the same on both.
pub fn differences(old: &Machine, new: &Machine) -> Vec<Difference> {
    let same_clock = match (old.tsc_mhz, new.tsc_mhz) {
        (Some(a), Some(b)) => (a - b).abs() <= TSC_TOLERANCE * a.abs(),
        (a, b) => a == b,
    };
    let all = |machine: &Machine| -> Vec<(String, String)> {
        let stamp = fields(machine).into_iter().filter(|(name, _)| !(same_clock && *name == "TSC"));
        let paths =
            machine.paths.iter().map(|(name, state)| (format!("path {name}"), state.clone()));
        stamp.map(|(name, value)| (name.to_owned(), value)).chain(paths).collect()
    };
    let (old, new) = (all(old), all(new));
    let value = |fields: &[(String, String)], name: &str| {
        let found = fields.iter().find(|(field, _)| field == name);
        found.map_or_else(|| "not known".to_owned(), |(_, value)| value.clone())
    };
    let mut names: Vec<&String> = new.iter().map(|(name, _)| name).collect();
    names.extend(old.iter().map(|(name, _)| name).filter(|n| !new.iter().any(|(m, _)| m == *n)));
    names
        .into_iter()
        .map(|n| Difference { field: n.clone(), old: value(&old, n), new: value(&new, n) })
        .filter(|difference| difference.old != difference.new)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_is_the_same_machine() {
        let old = Machine { tsc_mhz: Some(2596.1), ..Machine::default() };
        let new = Machine { tsc_mhz: Some(2595.2), ..Machine::default() };
        assert_eq!(differences(&old, &new), []);
        let other = Machine { tsc_mhz: Some(3100.0), ..Machine::default() };
        assert_eq!(differences(&old, &other)[0].field, "TSC");
    }

    #[test]
    fn names_what_differs_and_what_is_gone() {
        let mut old =
            Machine { kernel: "6.1.0".into(), libc: "glibc 2.36".into(), ..Default::default() };
        old.paths.insert("mm_cid".into(), "missing".into());
        let mut new = Machine { kernel: "6.12.0".into(), ..Default::default() };
        new.paths.insert("mm_cid".into(), "used".into());
        let found: Vec<String> = differences(&old, &new)
            .into_iter()
            .map(|d| format!("{}: {} -> {}", d.field, d.old, d.new))
            .collect();
        assert_eq!(
            found,
            [
                "kernel: 6.1.0 -> 6.12.0",
                "path mm_cid: missing -> used",
                "libc: glibc 2.36 -> not known"
            ]
        );
    }

    #[test]
    fn unknown_fields_are_left_out() {
        let names: Vec<_> = fields(&Machine::default()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["cpus", "NUMA nodes"]);
    }
}
