"""Compatibility: scripts written for `kubernetesdlprofile` run unchanged over Swell's in-job library."""
