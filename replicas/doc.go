// Package replicas tracks the processes that serve the webhooks.
//
// Each renews a Lease ([Replica.Start]), which shows that it is live and has its reports: the certificate that it serves, the hash of
// its active policies, and what these have denied. [Replica.Serving] and [Replica.Policies] list the Leases without a cache, for changes
// that must wait for all replicas.
//
// # Liveness
//
// If a live replica counts as dead, requests may fail, because changes do not wait for it; if a dead one counts as live, changes are only
// delayed. Clocks of different machines are not compared, as in leader election: a replica is live for the duration in its Lease after this
// process has observed a renewal. A Lease that is observed for the first time counts as just renewed, unless its renewal is so old that
// clocks would have to differ by more than a minute. Changes of a Lease by other clients are not renewals.
//
// # Names
//
// A Lease has the name of its replica, which is that of the Pod. A process that starts takes over the Lease of its name immediately, without
// its reports: the container was restarted. If a running process finds that another one has taken its Lease, which cannot happen within one
// Pod, it continues with a Lease of a unique name, so that both are counted.
//
// # Restore of etcd
//
// If the API server returns an older version of the Lease than before, etcd was restored from a backup. The process records that
// ([Options.Restored]) and ends ([ErrRestored]): watches go on from a revision that the restored etcd reaches only later, so that its caches
// would keep objects that no longer exist. It is noticed with the next renewal, also if the restore has raised the
// revision of etcd, unless the backup is older than the Lease.
//
// # End
//
// A replica deletes its Lease at a graceful shutdown ([Replica.Leave]). After a crash the Lease expires, and is deleted with its Pod, or by
// another replica that has observed no renewal for ten times its duration. If a user deletes a Lease, its replica creates it again, with all
// reports.
package replicas
