//! Reads `cache.redis` of a manifest.

use super::decode::Entry;
use crate::cache::RedisAddress;

/// The address, and a finding about one that cannot be used.
pub(super) fn read_redis(root: Entry<'_>, url: Option<&str>) -> Option<RedisAddress> {
    RedisAddress::parse(url?)
        .map_err(|message| root.error(&["cache", "redis"], message))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::load_text;

    #[test]
    fn addresses_are_read() {
        let text = "cache: {redis: 'redis://:${env:KEY}@cache.test:7000/2', max_bytes: 1MiB}\n";
        let manifest = load_text(text).unwrap();
        assert_eq!(manifest.redis.unwrap().to_string(), "cache.test:7000/2");
        assert!(manifest.secrets.contains(&"value-of-key".to_owned()));
        let plain = load_text("cache: {redis: 'redis://:in-clear@cache.test'}\n").unwrap();
        assert!(plain.secrets.contains(&"in-clear".to_owned()));
        assert!(
            load_text("cache: {max_bytes: 1MiB}\n")
                .unwrap()
                .redis
                .is_none()
        );
    }

    #[test]
    fn unusable_addresses_are_located() {
        let found = load_text("cache:\n  redis: http://:hidden@cache.test\n")
            .err()
            .unwrap();
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("2:3: cache.redis: the URL must begin"),
            "{found:?}"
        );
        assert!(!found[0].contains("hidden"));
    }
}
