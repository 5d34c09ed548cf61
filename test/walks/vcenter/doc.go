// Package vcenter has the program that ships run machines on a simulated vCenter, and looks at that behind its back.
//
// The race detector leaves it out: what it tests is another process, and the simulator has races of its own.
package vcenter
