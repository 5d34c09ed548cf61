// Package replicas lets the processes that serve the webhooks know of each other.
//
// Each keeps a Lease ([Replica.Start]) that says that it is live, and carries what it reports: which certificate it serves, and
// which policies decide in it. Whoever must not change something before all replicas have followed asks [Replica.Serving] or
// [Replica.Policies], which list the Leases past every cache.
//
// # Who is live
//
// To take a replica for dead that is not may cost requests, because it would not be waited for; to take a dead one for live only
// costs time. So, as leader election does it, nobody compares another machine's clock with its own: a replica is live as long as
// this process sees its Lease renewed, each time for the duration that the Lease says. A Lease that is seen for the first time
// counts as just renewed, unless it was renewed so long ago that clocks would have to differ by more than a minute. What other
// people change in a Lease is no renewal.
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
// belongs to, and is otherwise removed by any other replica that has seen it unchanged for ten times its duration. One that
// somebody deletes is made anew, with all that was reported.
package replicas
