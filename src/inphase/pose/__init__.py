"""Body pose: estimators, tracking, joints, and stores of poses."""
