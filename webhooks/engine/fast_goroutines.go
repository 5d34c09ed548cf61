package engine

// Rego goes deep into the stack, and a goroutine that has just begun would have to grow its own, by copying, several times for
// each evaluation: that took as long as the evaluation itself. So goroutines that have evaluated wait for more.

// idle are those that wait. More than these end when they have nothing to do.
var idle = make(chan chan func(), 64)

func (*accelerated) spawn(f func()) {
	select {
	case work := <-idle:
		work <- f
	default:
		work := make(chan func(), 1) // so that handing over waits for nobody
		work <- f
		go serve(work)
	}
}

func serve(work chan func()) {
	for f := range work {
		f()
		select {
		case idle <- work:
		default:
			return
		}
	}
}
