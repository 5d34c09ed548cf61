// Package replicas tracks the processes that serve the webhooks.
//
// Each keeps a Lease ([Replica.Start]) that says that it is live, and carries what it reports: which certificate it serves, and
// which policies decide in it. [Replica.Serving] and [Replica.Policies] list the Leases without a cache, for changes that must
// wait until all replicas have followed.
//
// # Who is live
//
// If a live replica counts as dead, requests may fail, because changes do not wait for it; if a dead one counts as live, only time
// is lost. So, as in leader election, clocks of different machines are not compared: a replica is live as long as this process sees
// its Lease renewed, each time for the duration that the Lease says. A Lease that is seen for the first time counts as just
// renewed, unless it was renewed so long ago that clocks would have to differ by more than a minute. Changes that other clients
// make to a Lease are not renewals.
//
// # Names
//
// A Lease has the name of its replica, which is that of the Pod. A process that starts under a name takes its Lease over at once,
// with nothing reported: it is a container that was started again. Should a process find that another has taken its Lease, which
// cannot be in one Pod, it goes on with a Lease of a name of its own, so that both are counted.
//
// # The end
//
// A Lease is deleted by its replica at an orderly end ([Replica.Leave]), runs out after a crash, goes away with the Pod that it
// belongs to, and is otherwise removed by any other replica that has seen it unchanged for ten times its duration. A Lease that a
// user deletes is created again, with all reports.
package replicas
