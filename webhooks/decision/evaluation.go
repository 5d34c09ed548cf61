package decision

import "sallyport.dev/sallyport/webhooks/catalog"

// evaluation is a decision that the gate is making: only its methods change a [Decision].
type evaluation struct {
	*Decision
	set *catalog.Set
}
