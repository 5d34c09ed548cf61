// Package guards has the shipped guards, of scale and of deletion, on a local control plane with the chart and with Kubernetes' own
// controllers: every way to scale a workload down or to delete an object, what becomes of it with a replica that answers, what while
// nobody does, and what is left to the floor.
package guards
