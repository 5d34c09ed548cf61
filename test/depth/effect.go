package depth

// Effect begins what a test says of an effect that was lost or doubled, or had by who must not have it. CI does not run such a test again
// to see whether it passes then.
const Effect = "EFFECT: "
