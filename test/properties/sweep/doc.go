// Package sweep holds the fault sweep: what becomes of every operation on a vCenter when any one of the requests that it
// makes fails, is refused, hangs, loses its reply, or is the last one of the process that makes it.
//
// A clean run of an operation says which requests there are and how it ends. Then it is run again for each of them and
// each fault, with both reconcilers and the simulated vCenter driven in turns, and has to end the same. That is done with
// what an API server does in memory, for all points, and before a real API server, for some of them, or for all:
//
//	go test ./test/properties/sweep -run APIServer -every 0 -timeout 20m
//
// TestTemplates does it with VSphereTemplates, from which somebody goes on cloning machines by name; all of its points are
//
//	go test ./test/properties/sweep -run Templates -every 0 -timeout 40m
//
// The race detector leaves it out, because the simulator has races of its own.
//
// Requests of the REST API, by which tags are read, and uploads are among them. Left out are those for storage policies, and the one request that needs
// no session and goes before each login, which asks what the vCenter is.
package sweep
