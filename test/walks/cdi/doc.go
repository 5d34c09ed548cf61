// Package cdi has images imported, copied and deleted by the real controllers of CDI and of CSI's snapshots: make test-cdi. A volume is a folder,
// and the Pods that import, and the scheduler, are played, because there is no node.
package cdi
