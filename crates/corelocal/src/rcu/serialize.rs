//! Conversions by serde: a pointer or a copy is what its current version is, a map is a map.

use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::pointer::{NeverNull, Pointer, Rcu};
use super::{RcuCopy, RcuHashMap};

impl<P: Pointer> Serialize for Rcu<P>
where
    for<'g> P::Ref<'g>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let guard = self.domain().read();
        self.load(&guard).serialize(serializer)
    }
}

/// Deserializes into a value for guards of the global domain.
impl<'de, P: NeverNull + From<P::Target>> Deserialize<'de> for Rcu<P>
where
    P::Target: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        P::Target::deserialize(deserializer).map(Rcu::from_pointee)
    }
}

/// Deserializes into a value for guards of the global domain.
impl<'de, P: NeverNull + From<P::Target>> Deserialize<'de> for Rcu<Option<P>>
where
    P::Target: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::<P::Target>::deserialize(deserializer)?;
        Ok(Rcu::new(value.map(P::from)))
    }
}

impl<T: Copy + Serialize> Serialize for RcuCopy<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.load().serialize(serializer)
    }
}

impl<'de, T: Copy + Deserialize<'de>> Deserialize<'de> for RcuCopy<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(RcuCopy::new)
    }
}

impl<K: Serialize, V: Serialize, S> Serialize for RcuHashMap<K, V, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let guard = self.domain().read();
        let mut map = serializer.serialize_map(None)?;
        self.iter(&guard).try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

/// Deserializes into a value for guards of the global domain.
impl<'de, K, V, S> Deserialize<'de> for RcuHashMap<K, V, S>
where
    K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
    V: Deserialize<'de> + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<K, V, S>(PhantomData<(K, V, S)>);

        impl<'de, K, V, S> Visitor<'de> for Pairs<K, V, S>
        where
            K: Deserialize<'de> + Hash + Eq + Send + Sync + 'static,
            V: Deserialize<'de> + Send + Sync + 'static,
            S: BuildHasher + Default,
        {
            type Value = RcuHashMap<K, V, S>;

            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
                let map = RcuHashMap::with_hasher(S::default());
                while let Some((key, value)) = pairs.next_entry()? {
                    map.insert(key, value);
                }
                Ok(map)
            }
        }

        deserializer.deserialize_map(Pairs(PhantomData))
    }
}
