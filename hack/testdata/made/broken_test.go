//go:build broken

package made

var x = y
